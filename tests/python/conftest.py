"""Tests of the Python face: of the package in the source tree or, with MOEWAY_TEST_INSTALLED=1, of an installed one.

    python3 -m pytest tests/python          MOEWAY_LIBRARY names the library, else the newest build's is taken
    tests/python/run_gpu.sh                 what needs GPUs
    tests/python/check_wheel.sh             the wheel, built and tested
"""

import os
import pathlib
import sys

if os.environ.get("MOEWAY_TEST_INSTALLED") != "1":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings" / "python"))
