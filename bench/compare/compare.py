"""Measures moeway and other libraries on the same inputs, each through its public interface.

usage: compare.py [--device cuda|cpu] [--ranks W] [--tokens T,T,...] [--libraries NAME,NAME,...] [--json FILE] [--plot FILE]

Every library runs in processes of its own, one a rank, and may take --limit seconds; one that is not installed, or cannot do
what is asked, is named with the reason. Every value is checked before and after the timing, with experts that differ. Times
are of pairs of dispatch and combine, each iteration's the maximum over ranks, then the median: in a replayed CUDA graph of
many pairs, and called one by one without waiting between them. What a caller would pay is in them, with outputs taken once
where the interface lets the caller give them. On CPUs only ratios mean something.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "tools")]
if os.environ.get("MOEWAY_TEST_INSTALLED") != "1":
    sys.path.insert(0, str(ROOT / "bindings" / "python"))

SCHEMA = "moeway.compare/1"
TIMES = ("graph_us", "pair_us", "dispatch_us", "host_us")
DTYPES = ("bf16", "fp8", "bf16-to-fp8")


def statistics(ranks):
    """{"median", "p10", "p90"} over iterations of the maximum over ranks; `ranks`: a list of times of each."""
    slowest = sorted(max(times) for times in zip(*ranks))
    return {name: slowest[min(len(slowest) - 1, int(share * len(slowest)))]
            for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9))}


def merged(said):
    """The points of a library, from what its ranks said."""
    points = []
    for tokens in said[0]["points"]:
        of_ranks = [rank["points"][tokens] for rank in said if tokens in rank["points"]]
        if len(of_ranks) < len(said):
            continue
        first = of_ranks[0]
        point = {"tokens": int(tokens), "wrong": sum(one["wrong"] for one in of_ranks), "no_graph": first["no_graph"]}
        for name in TIMES:
            point[name] = statistics([one[name] for one in of_ranks]) if first[name] else None
        points.append(point)
    return points


def work(rank, name, options, directory):
    """The process of a rank; what it needs is imported there."""
    import worker

    worker.run(rank, name, options, directory)


def measure(name, options):
    """Runs a library's ranks; its part of the document."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="moeway-compare-") as directory:
        processes = [context.Process(target=work, args=(rank, name, options, directory)) for rank in range(options["ranks"])]
        for process in processes:
            process.start()
        deadline = time.monotonic() + options["limit"]
        for process in processes:
            process.join(max(0.1, deadline - time.monotonic()))
        late = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for process in processes:
            process.kill()
            process.join()
        said, silent = [], []
        for rank in range(options["ranks"]):
            path = os.path.join(directory, f"rank{rank}.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    said.append(json.load(file))
            else:
                silent.append(rank)
    result = {"name": name, "version": "", "layout": "", "points": [], "skipped": "", "failed": ""}
    if late or silent:
        result["failed"] = (f"ranks {late} took more than {options['limit']} s" if late else
                            f"ranks {silent} ended without a word")
    result["failed"] += "".join(rank["failed"] for rank in said if rank["failed"])
    result["skipped"] = next((rank["skipped"] for rank in said if rank["skipped"]), "")
    if len(said) == options["ranks"]:
        result["points"] = merged(said)
        for point in said[0]["points"].values():
            result["version"], result["layout"] = point["version"], point["layout"]
    return result


def output_of(*command):
    """What a command prints, or nothing."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def machine(device):
    """What the figures were measured on."""
    found = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "kernel": platform.release()}
    if device == "cuda":
        query = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
        import torch

        found.update(gpus=query, cuda=torch.version.cuda, nccl=".".join(map(str, torch.cuda.nccl.version())))
    return found


def table(document):
    """Text: a line for each library and number of tokens."""
    options = document["options"]
    lines = [f"{options['ranks']} ranks on {options['device']}, {options['experts']} experts, top-{options['topk']}, hidden "
             f"{options['hidden']}, {options['dtype']}; us a pair, slowest rank, median", "",
             f"{'':<32}{'tokens':>8}{'graph':>12}{'calls':>12}{'dispatch':>12}{'host':>12}{'wrong':>8}"]
    for library in document["libraries"]:
        for point in library["points"]:
            cells = (f"{point[name]['median']:.1f}" if point[name] else "-" for name in TIMES)
            lines.append(f"{library['name']:<32}{point['tokens']:>8}" + "".join(f"{cell:>12}" for cell in cells) +
                         f"{point['wrong']:>8}")
    for library in document["libraries"]:
        if library["skipped"]:
            lines.append(f"skipped: {library['name']}: {library['skipped']}")
        if library["failed"]:
            lines.append(f"FAILED: {library['name']}: {library['failed']}")
    return "\n".join(lines)


def draw(document):
    """The SVG's text: pairs against tokens; in a graph where the library can be captured, else called one by one."""
    import svg_chart

    curves = []
    for library in document["libraries"]:
        points = [(point, point["graph_us"] or point["pair_us"]) for point in library["points"] if not point["wrong"]]
        if points:
            how = "graph" if points[0][0]["graph_us"] else "calls"
            curves.append(svg_chart.Curve(
                f"{library['name']} {library['version']}, {library['layout']} ({how})",
                [(point["tokens"], times["median"]) for point, times in points],
                [(times["p10"], times["p90"]) for _, times in points],
                width=2.2 if library["name"].startswith("moeway") else 1.2))
    if not curves:
        raise SystemExit("compare: no library gave right values: nothing to plot")
    options = document["options"]
    title = (f"{options['experts']} experts, top-{options['topk']}, hidden {options['hidden']}, {options['dtype']}; "
             f"{options['ranks']} ranks on {options['device']}: {', '.join(document['machine'].get('gpus', []))}; "
             f"commit {document['commit']}")
    return svg_chart.chart(curves, title, "tokens of a rank", "us, dispatch and combine")


def parsed(words):
    """The options. Ends with a message and code 2 if one is wrong."""
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0], description=__doc__.split("\n")[0])
    whole = lambda text: int(text) if text.isdigit() and int(text) > 0 else parser.error(f"{text!r}: expected 1 or more")  # noqa: E731
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where ranks are, a GPU each [cuda]")
    parser.add_argument("--ranks", type=whole, default=2, help="[2]")
    parser.add_argument("--tokens", default="1,8,128", help="of each rank, a list [1,8,128]")
    parser.add_argument("--experts", type=whole, default=256, help="[256]")
    parser.add_argument("--topk", type=whole, default=8, help="[8]")
    parser.add_argument("--hidden", type=whole, default=7168, help="[7168]")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="what is given and what moves [bf16]")
    parser.add_argument("--libraries", default="", help="[all]")
    parser.add_argument("--sets", type=whole, default=8, help="inputs that pairs rotate over [8]")
    parser.add_argument("--pairs", type=whole, default=20, help="in a graph, or between two waits [20]")
    parser.add_argument("--iterations", type=whole, default=30, help="[30]")
    parser.add_argument("--limit", type=whole, default=300, help="seconds for each library [300]")
    parser.add_argument("--json", default="", help="write the document there")
    parser.add_argument("--plot", default="", help="write an SVG there")
    options = parser.parse_args(words)
    options.tokens = [whole(text) for text in options.tokens.split(",")]
    if options.experts % options.ranks:
        parser.error(f"--experts is {options.experts}, expected a multiple of --ranks = {options.ranks}: others need it")
    if options.hidden % 128:
        parser.error(f"--hidden is {options.hidden}, expected a multiple of 128")
    if options.topk > options.experts:
        parser.error(f"--topk is {options.topk}, expected at most --experts = {options.experts}")
    return parser, options


def main():
    parser, options = parsed(sys.argv[1:])
    try:
        import torch

        from libraries import LIBRARIES
    except ImportError as error:
        raise SystemExit(f"compare: {error}; torch and moeway must be importable") from error
    if options.device == "cuda" and torch.cuda.device_count() < options.ranks:
        parser.error(f"--ranks is {options.ranks}, but torch sees {torch.cuda.device_count()} GPUs; --device cpu needs none")
    names = options.libraries.split(",") if options.libraries else list(LIBRARIES)
    for name in names:
        if name not in LIBRARIES:
            parser.error(f"--libraries: {name!r}, expected some of {', '.join(LIBRARIES)}")
    document = {"schema": SCHEMA, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                "command": "compare.py " + shlex.join(sys.argv[1:]), "commit": output_of("git", "rev-parse", "--short", "HEAD"),
                "machine": machine(options.device), "torch": torch.__version__, "options": vars(options), "libraries": []}
    for name in names:
        document["libraries"].append(measure(name, vars(options)))
        if options.json:
            with open(options.json + ".part", "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
            os.replace(options.json + ".part", options.json)
    print(table(document))
    if options.plot:
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(draw(document))
    wrong = any(point["wrong"] for library in document["libraries"] for point in library["points"])
    return 1 if wrong or any(library["failed"] for library in document["libraries"]) else 0


if __name__ == "__main__":
    sys.exit(main())
