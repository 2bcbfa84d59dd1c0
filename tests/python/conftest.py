"""Tests of the Python face: of the package in the source tree or, with MOEWAY_TEST_INSTALLED=1, of an installed one.

    python3 -m pytest tests/python          MOEWAY_LIBRARY names the library, else the newest build's is taken
    tests/python/run_gpu.sh                 what runs on GPUs, with MOEWAY_TEST_DEVICE=cuda
    tests/python/check_wheel.sh             the wheel, built and tested
"""

import os
import pathlib
import sys

# Tests of CPU ranks mean the CPU, also where there are GPUs; torch is not imported yet.
if os.environ.get("MOEWAY_TEST_DEVICE") != "cuda":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
if os.environ.get("MOEWAY_TEST_INSTALLED") != "1":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))
