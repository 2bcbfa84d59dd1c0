"""Runs the command line in tests. MOEWAY_PROGRAM names the program; ctest sets it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("MOEWAY_PROGRAM", "moeway")
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
TRACES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "routes"
# A hang is a failure. Sanitizers and a busy machine slow things down a lot.
LIMIT_S = 150


def without_sanitizer_notes(text):
    """The address sanitizer says of every process with fibers that it is not sure about them."""
    return re.sub(r"(?m)^==\d+==WARNING: ASan doesn't fully support makecontext/swapcontext .*\n", "", text)


class ProgramTest(unittest.TestCase):
    """Every test gets an empty directory for temporary files, which must be empty again when the test ends."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="moeway-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.meeting = os.path.join(self.folder, "tmp")
        os.mkdir(self.meeting, 0o700)
        # Without GPUs: what is tested here is the same on all machines.
        self.environment = dict(os.environ, TMPDIR=self.meeting, XDG_RUNTIME_DIR=self.meeting, LC_ALL="C",
                                CUDA_VISIBLE_DEVICES="")
        for variable in ("MOEWAY_TIMEOUT_MS", "MOEWAY_RANK", "MOEWAY_WORLD_SIZE"):
            self.environment.pop(variable, None)

    def tearDown(self):
        self.assertEqual(os.listdir(self.meeting), [], "something was left in the temporary directory")

    def call(self, *words, **environment):
        """Runs the program to its end."""
        done = subprocess.run([PROGRAM, *map(str, words)], env={**self.environment, **environment},
                              capture_output=True, text=True, encoding="utf-8", timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        done.stderr = without_sanitizer_notes(done.stderr)
        return done

    def start(self, *words):
        """Starts the program; the test ends it."""
        process = subprocess.Popen([PROGRAM, *map(str, words)], env=self.environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, encoding="utf-8", stdin=subprocess.DEVNULL)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def run_json(self, *words):
        """`moeway run` that must succeed; gives its JSON."""
        done = self.call("run", *words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)


class DamageTest(ProgramTest):
    """Calls of the library are damaged on their way (damage.c)."""

    def setUp(self):
        super().setUp()
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            self.skipTest("needs a C compiler")
        if "libmoeway" not in subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False).stdout:
            self.skipTest("needs moeway as a shared library")
        self.damage = os.path.join(self.folder, "damage.so")
        here = pathlib.Path(__file__).resolve().parent
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", f"-I{here.parents[1] / 'include'}", "-o", self.damage,
                        here / "damage.c", "-ldl"], check=True)

    def call_with_damage(self, what, *words, **environment):
        # The address sanitizer wants to be the first library, without need here.
        sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
        return self.call(*words, LD_PRELOAD=self.damage, MOEWAY_DAMAGE=what, ASAN_OPTIONS=sanitizer, **environment)
