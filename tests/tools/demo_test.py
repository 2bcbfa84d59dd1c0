"""tools/demo.sh takes the GPUs if there are some and nvcc is there, else the processors, and says which and why."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Stands for a compiled moeway: it shows how it was called.
CMAKE = """#!/bin/sh
echo "cmake $*"
for word; do
  [ "${last:-}" = -B ] && mkdir -p "$word/cli" && printf '#!/bin/sh\\necho "moeway $*"\\n' >"$word/cli/moeway" && chmod +x "$word/cli/moeway"
  last=$word
done
"""


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "demo.sh", self.root / "tools")
        self.programs = self.root / "programs"
        self.programs.mkdir()
        self.program("cmake", CMAKE)
        for name in ("dirname", "tr", "sort", "paste", "nproc", "mkdir", "chmod", "sh", "printf"):
            os.symlink(shutil.which(name), self.programs / name)

    def program(self, name, text):
        (self.programs / name).write_text(text, encoding="utf-8")
        (self.programs / name).chmod(0o755)

    def demo(self):
        done = subprocess.run([self.root / "tools" / "demo.sh", "--rounds", "3"], capture_output=True, text=True, check=False,
                              env={"PATH": str(self.programs), "CUDA_HOME": str(self.root / "cuda")})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_without_gpus_it_runs_on_processors(self):
        text = self.demo()
        self.assertIn("demo: on the processors of this machine (nvidia-smi finds no GPU here)", text)
        self.assertNotIn("MOEWAY_CUDA", text)
        self.assertIn("moeway run --ranks 8 --device cpu --rounds 3", text)

    def test_a_driver_without_gpus_counts_as_none(self):
        self.program("nvidia-smi", "#!/bin/sh\necho No devices were found\nexit 6\n")
        self.assertIn("--device cpu", self.demo())

    def test_gpus_without_nvcc_are_named(self):
        self.program("nvidia-smi", "#!/bin/sh\necho 9.0\n")
        text = self.demo()
        self.assertIn("this machine has GPUs, but nvcc is neither in PATH nor below CUDA_HOME", text)
        self.assertIn("--device cpu", text)

    def test_gpus_and_nvcc_are_used(self):
        self.program("nvidia-smi", "#!/bin/sh\nprintf '9.0\\n8.0\\n9.0\\n'\n")
        self.program("nvcc", "#!/bin/sh\n")
        text = self.demo()
        self.assertIn("demo: on the GPUs of this machine", text)
        self.assertIn("-DMOEWAY_CUDA=ON", text)
        self.assertIn("-DMOEWAY_CUDA_ARCHITECTURES=80;90", text)
        self.assertIn("moeway run --ranks 8 --device cuda --rounds 3", text)

    def test_nvcc_below_cuda_home_is_found(self):
        self.program("nvidia-smi", "#!/bin/sh\necho 9.0\n")
        nvcc = self.root / "cuda" / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text("#!/bin/sh\n", encoding="utf-8")
        nvcc.chmod(0o755)
        self.assertIn(f"-DCMAKE_CUDA_COMPILER={nvcc}", self.demo())


if __name__ == "__main__":
    unittest.main()
