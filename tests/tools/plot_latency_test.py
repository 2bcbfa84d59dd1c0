"""tools/bench_results.py and tools/plot_latency.py: what they take from the JSON of `moeway bench`, and what they refuse."""

import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import bench_results  # noqa: E402
import plot_latency  # noqa: E402
import svg_chart  # noqa: E402


def point(tokens, median, wrong=0):
    return {"tokens": tokens, "pair_us": {"median": median, "p10": median - 1, "p90": median + 1}, "wrong": wrong}


SHAPE = {"experts": 256, "topk": 8, "hidden": 7168, "dispatch_dtype": "f8_e4m3", "scales": "f32", "row_dtype": "bf16",
         "layout": "padded", "weights": "dispatch"}
DOCUMENT = {
    "schema": "moeway.bench/1", "commit": "abc", "ok": True,
    "device": {"name": "GPU", "multiprocessors": 132, "driver": "580.1", "driver_cuda": "13.0", "runtime_cuda": "13.0"},
    "job": {"ranks": 2, "ranks_as": "threads", "sets": 1},
    "series": [{"shape": SHAPE, "calls": "fused", "transport": "nvlink", "failures": [],
                "points": [point(128, 15.5), point(1, 7.25), point(8, 9, wrong=3)]}],
    "baselines": [{"dispatch_dtype": "f8_e4m3", "scales": "f32", "row_dtype": "bf16", "nccl": "2.27.7", "failures": [],
                   "points": [{"name": "copy", "tokens": 1, "pair_us": {"median": 2.5, "p10": 2, "p90": 3}, "skipped": None},
                              {"name": "nccl_per_rank", "tokens": 1, "pair_us": None, "skipped": "no NCCL"}]}]}


class BenchResults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, content):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def call(self, tool, *words):
        return subprocess.run([sys.executable, "-B", ROOT / "tools" / tool, *words], capture_output=True, text=True, check=False)

    def test_merges_documents_and_lists_in_order(self):
        second = dict(DOCUMENT, commit="def")
        merged = str(pathlib.Path(self.folder.name, "merged.json"))
        done = self.call("bench_results.py", "merge", merged, self.write("a.json", DOCUMENT), self.write("b.json", [second]))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([document["commit"] for document in bench_results.load([merged])], ["abc", "def"])

    def test_refuses_what_is_no_result_and_names_it(self):
        for content, words in (({"schema": "moeway.run/1"}, "expected schema moeway.bench/1, got moeway.run/1"), ("[1", "Expecting"),
                               ([1], "got 1")):
            path = self.write("bad.json", content)
            done = self.call("bench_results.py", "table", path)
            self.assertEqual(done.returncode, 1)
            self.assertIn(path, done.stderr)
            self.assertIn(words, done.stderr)
        self.assertIn("/nonexistent", self.call("bench_results.py", "table", "/nonexistent").stderr)

    def test_table_names_conditions_series_and_wrong_values(self):
        text = bench_results.table([DOCUMENT])
        self.assertIn("256 experts, top-8, hidden 7168; 2 ranks as threads, nvlink, GPU (132 SMs), driver 580.1, CUDA 13.0; "
                      "commit abc", text)
        self.assertRegex(text, r"tokens +1 +8 +128\n")
        self.assertRegex(text, r"f8_e4m3 \+ f32 scales, padded, fused, 1 set +7\.25 +9\.00! +15\.50\n")
        self.assertRegex(text, r"copy, f8_e4m3 \+ f32 scales +2\.50 +- +-")
        self.assertNotIn("nccl_per_rank", text)

    def test_table_keeps_other_conditions_apart_and_tells_of_failures(self):
        other = copy.deepcopy(DOCUMENT)
        other["commit"] = "def"
        other["series"][0]["failures"] = [{"rank": 1, "kind": "failed", "message": "late"}]
        text = bench_results.table([DOCUMENT, other])
        self.assertEqual(text.count("us a pair of dispatch and combine"), 2)
        self.assertIn("FAILED: rank 1: late", text)

    def test_no_curve_has_a_wrong_value(self):
        (label, points), = plot_latency.measured_curves([DOCUMENT])
        self.assertEqual(label, "moeway, f8_e4m3 + f32 scales, padded, fused, 1 set")
        self.assertEqual(points, [(1, 7.25, 6.25, 8.25), (128, 15.5, 14.5, 16.5)])
        self.assertEqual(plot_latency.measured_curves([DOCUMENT], "bf16"), [])
        self.assertEqual(plot_latency.baseline_curves([DOCUMENT], "fp8"),
                         [("copy, f8_e4m3 + f32 scales (same run)", [(1, 2.5)])])

    def test_reference_figures_say_what_they_are(self):
        reference = json.loads(plot_latency.REFERENCE.read_text(encoding="utf-8"))
        for figure in reference["figures"]:
            self.assertTrue(figure["harness"] and figure["source"] and figure["kind"], figure)
        curves = {label: points for label, _, points in plot_latency.reference_curves(reference, [DOCUMENT], "fp8")}
        self.assertEqual(curves["prototype, fp8, padded"], [(1, 6.8), (128, 14.2), (4096, 286)])
        low_latency = curves["DeepEP V1 low-latency, fp8, padded (dispatch + combine)"]
        self.assertEqual(low_latency[1], (128, 72.3))  # As a pair, where it was measured so.
        self.assertAlmostEqual(low_latency[0][1], 25.6)
        self.assertIn("dense all-to-all, torch + NCCL, fp8, padded (one direction)", curves)

    def test_reference_figures_of_another_shape_are_left_out(self):
        reference = json.loads(plot_latency.REFERENCE.read_text(encoding="utf-8"))
        other = copy.deepcopy(DOCUMENT)
        other["series"][0]["shape"]["hidden"] = 2048
        self.assertEqual(plot_latency.reference_curves(reference, [other]), [])

    def test_parts_of_a_series_are_one_curve_and_other_settings_another(self):
        part, fewer = copy.deepcopy(DOCUMENT), copy.deepcopy(DOCUMENT)
        part["series"][0]["points"] = [point(4096, 300), point(1, 99)]
        fewer["job"]["num_sms"] = 16
        curves = plot_latency.measured_curves([DOCUMENT, part, fewer])
        self.assertEqual([label.split(", ")[-2:] for label, _ in curves], [["fused", "1 set"], ["16 SMs", "1 set"]])
        self.assertEqual([(tokens, median) for tokens, median, _, _ in curves[0][1]], [(1, 7.25), (128, 15.5), (4096, 300)])

    def test_draws_every_point_of_every_curve(self):
        output = pathlib.Path(self.folder.name, "latency.svg")
        done = self.call("plot_latency.py", "--reference", "none", "--output", output, self.write("a.json", DOCUMENT))
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = xml.etree.ElementTree.parse(output).getroot()
        texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("moeway, f8_e4m3 + f32 scales, padded, fused, 1 set", texts)
        self.assertIn("copy, f8_e4m3 + f32 scales (same run)", texts)
        # Three points, and two in the legend for each of the two curves.
        self.assertEqual(len(list(svg.iter("{http://www.w3.org/2000/svg}circle"))), 3 + 2 * 2)

    def test_places_are_logarithmic(self):
        svg = svg_chart.chart([svg_chart.Curve("a & b", [(1, 10), (8, 1000)]), svg_chart.Curve("c", [(2, 100)])], "t", "x", "y")
        circles = [(float(x), float(y)) for x, y in re.findall(r'circle cx="([0-9.]+)" cy="([0-9.]+)"', svg)]
        first, last, between = circles[0], circles[1], circles[4]
        self.assertAlmostEqual((between[0] - first[0]) / (last[0] - first[0]), 1 / 3, places=2)
        self.assertAlmostEqual((between[1] - first[1]) / (last[1] - first[1]), 1 / 2, places=2)
        self.assertIn("a &amp; b", svg)

    def test_nothing_to_draw_is_an_error(self):
        done = self.call("plot_latency.py", "--dtype", "f16", self.write("a.json", DOCUMENT))
        self.assertEqual(done.returncode, 1)
        self.assertIn("no series with right values of dtype f16", done.stderr)


if __name__ == "__main__":
    unittest.main()
