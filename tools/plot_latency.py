"""Draws the latency of a pair of dispatch and combine against tokens, as SVG, from what `moeway bench --json` has written.

usage: plot_latency.py [--output FILE] [--dtype T] [--reference FILE|none] RESULT...

  --output FILE      [latency.svg]
  --dtype T          only series and reference figures of this type of dispatch: fp8, bf16, ... [all]
  --reference FILE   the figures to hold them against [bench/reference_figures.json], or none

Reference figures are drawn if a result has their shape and number of ranks. They come from other harnesses, which the legend and the
file name.
"""

import argparse
import json
import pathlib
import sys

import bench_results
import svg_chart

REFERENCE = pathlib.Path(__file__).resolve().parent.parent / "bench" / "reference_figures.json"
SHORT = {"f8_e4m3": "fp8"}


def measured_curves(documents, dtype=None):
    """(label, [(tokens, median, p10, p90)]) of each series, without points whose values were wrong. What was measured in parts, under the
    same name, is one series."""
    curves = {}
    for document in documents:
        for series in document["series"]:
            if dtype and SHORT.get(series["shape"]["dispatch_dtype"], series["shape"]["dispatch_dtype"]) != dtype:
                continue
            points = {point["tokens"]: (point["pair_us"]["median"], point["pair_us"]["p10"], point["pair_us"]["p90"])
                      for point in series["points"] if point["pair_us"] and not point["wrong"]}
            if points:
                of_name = curves.setdefault(f"moeway, {bench_results.name_of(document, series)}", {})
                of_name.update((tokens, point) for tokens, point in points.items() if tokens not in of_name)
    return [(label, [(tokens, *points[tokens]) for tokens in sorted(points)]) for label, points in curves.items()]


def baseline_curves(documents, dtype=None):
    """(label, [(tokens, median)]) of what was measured in the same runs."""
    return [(f"{name} (same run)", sorted(medians.items())) for name, medians in bench_results.baselines_of(documents)
            if not dtype or SHORT.get(name.split(", ")[1].split(" ")[0], name.split(", ")[1].split(" ")[0]) == dtype]


def pair_of(figure):
    """(us by tokens, what they are): pairs as measured, else the sum of halves, else the one direction there is."""
    dispatch, combine = figure.get("dispatch_us", {}), figure.get("combine_us", {})
    values = {int(tokens): dispatch[tokens] + combine[tokens] for tokens in dispatch if tokens in combine}
    what = "dispatch + combine" if values else ""
    if not combine and dispatch:
        values, what = {int(tokens): us for tokens, us in dispatch.items()}, "one direction"
    values.update({int(tokens): us for tokens, us in figure.get("pair_us", {}).items()})
    return values, what


def reference_curves(reference, documents, dtype=None):
    """(label, kind, [(tokens, us)]) of each figure, if a document was measured with their shape; else []."""
    shape = reference["shape"]
    if not any(document["device"] and document["job"]["ranks"] == shape["ranks"] and
               all(series["shape"][name] == shape[name] for name in ("experts", "topk", "hidden"))
               for document in documents for series in document["series"]):
        return []
    curves = []
    for figure in reference["figures"]:
        if dtype and figure["dispatch_dtype"] != dtype:
            continue
        values, what = pair_of(figure)
        label = f"{figure['name']}, {figure['dispatch_dtype']}" + (f", {figure['layout']}" if figure["layout"] != "none" else "")
        curves.append((label + (f" ({what})" if what else ""), figure["kind"], sorted(values.items())))
    return curves


def draw(measured, baselines, references, title):
    """The SVG's text."""
    curves = [svg_chart.Curve(label, [(tokens, median) for tokens, median, _, _ in points], [(low, high) for _, _, low, high in points],
                              width=2.2) for label, points in measured]
    curves += [svg_chart.Curve(label, points, dashes="6 3") for label, points in baselines]
    styles = {"floor": {"color": "black", "dashes": "2 3"}, "prototype": {"color": "#777", "dashes": "8 3 2 3"},
              "target": {"color": "#bbb"}, "library": {"width": 0}}
    curves += [svg_chart.Curve(label, points, **styles.get(kind, {"width": 0})) for label, kind, points in references]
    return svg_chart.chart(curves, title, "tokens of a rank", "us, dispatch and combine")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0], description=__doc__.split("\n")[0])
    parser.add_argument("--output", default="latency.svg")
    parser.add_argument("--dtype")
    parser.add_argument("--reference", default=str(REFERENCE))
    parser.add_argument("results", nargs="+")
    options = parser.parse_args()
    documents = bench_results.load(options.results)
    measured = measured_curves(documents, options.dtype)
    if not measured:
        raise SystemExit(f"plot_latency: no series with right values{f' of dtype {options.dtype}' if options.dtype else ''} in "
                         f"{', '.join(options.results)}")
    references = []
    if options.reference != "none":
        with open(options.reference, encoding="utf-8") as file:
            reference = json.load(file)
        references = reference_curves(reference, documents, options.dtype)
        if not references:
            print("plot_latency: note: no result has the shape of the reference figures, which are left out", file=sys.stderr)
    title = bench_results.conditions_of(documents[0], documents[0]["series"][0])
    if references:
        title += f"\nother libraries, floor and prototype: {reference['machine']}, each in a harness of its own"
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(draw(measured, baseline_curves(documents, options.dtype), references, title))


if __name__ == "__main__":
    main()
