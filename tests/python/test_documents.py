"""The Python code in the documents runs, in the order in which it stands there."""

import importlib.util
import os
import pathlib
import re

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks_of(document):
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.S)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Without a launcher a process is a job by itself."""
    for name in list(os.environ):
        if name.startswith(("MOEWAY_RANK", "MOEWAY_WORLD", "RANK", "WORLD_SIZE", "OMPI_", "SLURM_")):
            monkeypatch.delenv(name)


def test_readme():
    names = {"x": np.full((3, 4096), 0x3F80, np.uint16), "topk_idx": np.int32([[0, 5], [7, -1], [2, 3]]),
             "topk_weights": np.ones((3, 2), np.float32), "experts": lambda rows, num_rows: rows}
    (block,) = blocks_of("README.md")
    exec(block, names)
    assert (names["y"][1] == 0x3F80).all() and (names["y"][0] == 0x4000).all()


def test_python_document():
    names = {}
    with_torch = importlib.util.find_spec("torch") is not None
    blocks = blocks_of("docs/python.md")
    assert len(blocks) == 4
    for block in blocks:
        if with_torch or not block.startswith("# needs torch"):
            exec(block, names)
    if not with_torch:
        pytest.skip("torch is not installed: the code that needs it did not run")
    assert names["weights"].grad.shape == (3, 2)


def test_links_lead_to_files():
    for document in ("docs/python.md", "docs/compat.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / document).read_text(encoding="utf-8")):
            assert (ROOT / "docs" / target).exists(), f"{document} links to {target}"
