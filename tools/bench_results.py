"""What `moeway bench --json` has written: many files put into one, and tables of them.

usage: bench_results.py merge TO FILE...     one file with a list of the documents of all others
       bench_results.py table FILE...        a table for each set of conditions: a row for each number of tokens

A FILE may hold one document or a list of them.
"""

import json
import os
import sys

SCHEMA = "moeway.bench/1"


def load(paths):
    """The documents of all files. SystemExit, with the file and what was expected, if one is something else."""
    documents = []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
        except (OSError, ValueError) as error:
            raise SystemExit(f"{path}: {error}") from error
        for document in content if isinstance(content, list) else [content]:
            schema = document.get("schema") if isinstance(document, dict) else document
            if schema != SCHEMA:
                raise SystemExit(f"{path}: expected schema {SCHEMA}, got {schema}")
            documents.append(document)
    return documents


def dtype_of(shape):
    made = "" if shape.get("quantise", "none") == "none" else "bf16 quantised to "
    return made + shape["dispatch_dtype"] + ("" if shape["scales"] == "none" else f" + {shape['scales']} scales")


def name_of(document, series):
    """What a series was measured with, as far as series differ in it."""
    shape = series["shape"]
    parts = [dtype_of(shape), shape["layout"]]
    if shape["weights"] != "dispatch":
        parts.append(f"weights at {shape['weights']}")
    parts.append("four phases" if series["calls"] == "split" else "fused")
    if document["job"].get("num_sms"):
        parts.append(f"{document['job']['num_sms']} SMs")
    parts.append(f"{document['job']['sets']} set{'' if document['job']['sets'] == 1 else 's'}")
    return ", ".join(parts)


def conditions_of(document, series):
    """What a table has in its heading: figures under different headings are not to be compared without saying so."""
    shape, job, device = series["shape"], document["job"], document["device"]
    where = f"{job['ranks']} ranks as {job['ranks_as']}, {series['transport']}"
    if device:
        num_devices = len(set(job.get("devices") or range(job["ranks"])))
        where += f", sharing {num_devices} GPU{'s' if num_devices > 1 else ''}" if num_devices < job["ranks"] else ""
        where += f", {device['name']} ({device['multiprocessors']} SMs), driver {device['driver']}, CUDA {device['runtime_cuda']}"
    return f"{shape['experts']} experts, top-{shape['topk']}, hidden {shape['hidden']}; {where}; commit {document['commit']}"


def series_of(documents):
    """(conditions, name, {tokens: point}) of each series, in the order of the documents."""
    return [(conditions_of(document, series), name_of(document, series),
             {point["tokens"]: point for point in series["points"]})
            for document in documents for series in document["series"]]


def baselines_of(documents):
    """(name, {tokens: median}) of each baseline that was measured."""
    found = {}
    for document in documents:
        for baseline in document["baselines"]:
            of_type = dtype_of(baseline)
            for point in baseline["points"]:
                if point["pair_us"]:
                    found.setdefault(f"{point['name']}, {of_type}", {})[point["tokens"]] = point["pair_us"]["median"]
    return list(found.items())


def table(documents):
    """Text: a heading for each set of conditions, and under it a line for each series, with a column for each number of tokens."""
    lines, headings = [], {}
    for conditions, name, points in series_of(documents):
        headings.setdefault(conditions, []).append(
            (name, {tokens: (point["pair_us"] or {}).get("median") for tokens, point in points.items()},
             {tokens for tokens, point in points.items() if point["wrong"]}))
    for conditions, rows in headings.items():
        rows = rows + [(name, medians, set()) for name, medians in baselines_of(documents)]
        columns = sorted({tokens for _, medians, _ in rows for tokens in medians})
        width = max(len(name) for name, _, _ in rows)
        lines += ["", conditions, "us a pair of dispatch and combine, slowest rank, median; ! some value was wrong", "",
                  f"{'tokens':<{width}}" + "".join(f"{tokens:>10}" for tokens in columns)]
        for name, medians, wrong in rows:
            cells = ("-" if medians.get(tokens) is None else f"{medians[tokens]:.2f}{'!' if tokens in wrong else ''}"
                     for tokens in columns)
            lines.append(f"{name:<{width}}" + "".join(f"{cell:>10}" for cell in cells))
    lines += [f"FAILED: rank {failure['rank']}: {failure['message']}" for document in documents
              for series in document["series"] + document["baselines"] for failure in series["failures"]]
    return "\n".join(lines)


def main():
    words = sys.argv[1:]
    if len(words) >= 3 and words[0] == "merge":
        documents = load(words[2:])
        with open(words[1] + ".part", "w", encoding="utf-8") as file:
            json.dump(documents, file, indent=1)
        os.replace(words[1] + ".part", words[1])
    elif len(words) >= 2 and words[0] == "table":
        print(table(load(words[1:])))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
