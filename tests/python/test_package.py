"""The command line of the package, and what a wheel takes from a build. check_wheel.sh builds the wheel itself."""

import os
import pathlib
import shutil
import subprocess
import sys

import moeway
import pytest

ROUND = """
import moeway, numpy as np, sys
assert str(moeway._library.library_path()).startswith(sys.argv[1]), moeway._library.library_path()
with moeway.Communicator(moeway.Bootstrap.threads(moeway.ThreadGroup(1), 0)) as communicator:
    with moeway.AllToAll(communicator, num_experts=1, topk=1, hidden=2, max_tokens=1, dispatch_dtype="f32",
                         row_dtype="f32", output_dtype="f32") as all_to_all:
        routing, output = all_to_all.dispatch(np.float32([[1, 2]]), np.int32([[0]]), np.float32([[3]]))
        print(all_to_all.combine(routing, output.x).tolist(), moeway.__version__)
"""


def python(*words, **environment):
    """A Python that knows of packages, and of no other moeway than the one that it is told of."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MOEWAY_", "PYTHONPATH"))}
    return subprocess.run([sys.executable, "-B", *words], env={**clean, **environment}, capture_output=True, text=True,
                          timeout=120, cwd="/", check=False)


@pytest.fixture(name="installed")
def installed_package(tmp_path):
    """The package with what its component of the build installs, as a wheel has it."""
    build = os.environ.get("MOEWAY_BUILD")
    if not build:
        pytest.skip("MOEWAY_BUILD names no build folder: what a wheel takes from it was not looked at")
    package = tmp_path / "site" / "moeway"
    shutil.copytree(pathlib.Path(moeway.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["cmake", "--install", build, "--component", "python", "--prefix", package], check=True,
                   capture_output=True)
    return package


def test_a_wheel_takes_the_library_and_the_program(installed):
    major_minor = ".".join(moeway.__version__.split(".")[:2])
    found = {path.relative_to(installed).as_posix() for path in installed.rglob("*")
             if path.is_file() and path.suffix not in (".py", ".typed")}
    assert found == {f"lib/libmoeway.so.{major_minor}", "bin/moeway"}


def test_an_installed_package_needs_nothing_of_the_build(installed):
    done = python("-c", ROUND, str(installed), PYTHONPATH=str(installed.parent))
    assert done.stdout == f"[[3.0, 6.0]] {moeway.__version__}\n", done.stderr
    done = python("-m", "moeway", "--version", PYTHONPATH=str(installed.parent))
    assert done.stdout == f"moeway {moeway.__version__}\n", done.stderr
    loaded = subprocess.run(["ldd", installed / "bin" / "moeway"], capture_output=True, text=True, check=True).stdout
    assert f"{installed}/bin/../lib/libmoeway.so" in loaded


def test_the_command_line_s_exit_code_is_the_program_s(installed):
    done = python("-m", "moeway", "run", "--ranks", "nonsense", PYTHONPATH=str(installed.parent))
    assert done.returncode == 2 and done.stderr.startswith("moeway")


def test_a_library_that_is_not_there_is_named():
    path = os.pathsep.join(sys.path)
    done = python("-c", "import moeway", PYTHONPATH=path, MOEWAY_LIBRARY="/no/such/library.so")
    assert done.returncode == 1
    assert "ImportError: libmoeway was not found: MOEWAY_LIBRARY is '/no/such/library.so'" in done.stderr


def test_a_file_that_is_no_library_is_named(tmp_path):
    wrong = tmp_path / "libmoeway.so"
    wrong.write_text("not a library")
    done = python("-c", "import moeway", PYTHONPATH=os.pathsep.join(sys.path), MOEWAY_LIBRARY=str(wrong))
    assert f"ImportError: libmoeway cannot be loaded from {wrong}" in done.stderr


def test_all_that_is_exported_has_a_docstring():
    for name in moeway.__all__:
        assert getattr(moeway, name).__doc__, name
