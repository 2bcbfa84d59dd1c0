"""Checks what the compiler does not: who may include whom, where CUDA and compiler tests may appear, and file sizes.

usage: check_layers.py [ROOT]

The rules are docs/design.md's:

  base <- exec <- layout <- peers <- kernels <- launch <- core
  base, exec, layout, peers <- transport <- core
  base <- bootstrap <- core

Prints one line per violation ("file:line: what") and fails if there is one.
"""

import pathlib
import re
import sys

# Which layers of src each layer may include, besides itself. <moeway/...> is open to all of them.
MAY_INCLUDE = {
    "base": set(),
    "exec": {"base"},
    "layout": {"base", "exec"},
    "peers": {"base", "exec", "layout"},
    "kernels": {"base", "exec", "layout", "peers"},
    "launch": {"base", "exec", "layout", "peers", "kernels"},
    "transport": {"base", "exec", "layout", "peers"},
    "bootstrap": {"base"},
    "core": {"base", "exec", "layout", "peers", "kernels", "launch", "transport", "bootstrap"},
}
# Folders that stand outside the library: <moeway/...>, their own files, and other projects' headers.
OUTSIDE = ("cli", "bench", "examples")

MAX_LINES = 400
COUNTED_SUFFIXES = {".h", ".cc", ".c", ".cu", ".cuh", ".inc", ".py", ".sh", ".cmake"}
SOURCE_SUFFIXES = {".h", ".cc", ".c", ".cu", ".cuh", ".inc"}
COUNTED_FOLDERS = ("include", "src", "cli", "bench", "examples", "bindings", "tests", "tools", "cmake")
VAGUE_WORDS = {"utils", "util", "misc", "helper", "helpers", "v2", "new", "ll"}

CUDA_HEADER = re.compile(
    r"(cuda(_\w+|[A-Z]\w*)?\.h|cuda/.*|nv/.*|cub/.*|thrust/.*|cute/.*|cutlass/.*|cooperative_groups.*|nvml.*|nvtx3/.*"
    r"|nvshmem.*|device_launch_parameters\.h)$")
CUDA_WORD = re.compile(r"\b(threadIdx|blockIdx|blockDim|gridDim|__syncthreads|__syncwarp|__shfl\w*|asm|__asm__)\b")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif)\b(.*)")
# Names that begin like this come from the compiler or the system. Language version and presence of a header are neither
# compiler nor device.
COMPILER_NAME = re.compile(r"\b(?!__cplusplus\b|__has_include\b|__has_cpp_attribute\b)(__\w+|_MSC_VER|_WIN\w+|_M_\w+)\b")


def knows_cuda(path):
    """Whether the file at `path` (relative to the root) is for CUDA alone. Others of src/exec know it behind an #if."""
    text = path.as_posix()
    folders = ("src/exec/cuda/", "src/peers/nvshmem/", "src/transport/nvlink/", "src/transport/nvshmem/")
    return (text.startswith(folders) or (text.startswith("src/launch/") and path.suffix in (".cu", ".cuh"))
            or (text.startswith("cli/device/cuda_") and path.suffix in (".cc", ".cu")))


def without_comments(text):
    """The text with comments blanked and line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)

    def blank(match):
        token = match.group()
        return token if token.startswith('"') else re.sub(r"[^\n]", " ", token)

    return pattern.sub(blank, text)


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.violations = []

    def report(self, path, line, what):
        self.violations.append(f"{path.as_posix()}:{line}: {what}")

    def files(self, folders, suffixes):
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts:
                    yield path.relative_to(self.root)

    def run(self):
        for path in self.files(COUNTED_FOLDERS, COUNTED_SUFFIXES):
            self.check_size_and_name(path)
        for path in self.files(("include", "src", "tests/reference") + OUTSIDE, SOURCE_SUFFIXES):
            text = without_comments((self.root / path).read_text(encoding="utf-8"))
            for number, line in enumerate(text.splitlines(), 1):
                if include := INCLUDE.match(line):
                    self.check_include(path, number, include.group(1) == '"', include.group(2))
                elif condition := CONDITION.match(line):
                    self.check_condition(path, number, condition.group(2))
                else:
                    self.check_words(path, number, line)
        for path in sorted(self.root.glob("cmake/*")) + [self.root / "CMakeLists.txt"]:
            self.check_link(path)
        return self.violations

    def check_size_and_name(self, path):
        lines = (self.root / path).read_text(encoding="utf-8").count("\n")
        if lines > MAX_LINES:
            self.report(path, lines, f"{lines} lines, at most {MAX_LINES} are allowed: split the file")
        vague = VAGUE_WORDS.intersection(re.split(r"[/_.]", path.as_posix()))
        for word in sorted(vague):
            self.report(path, 1, f"'{word}' in a file's name says nothing about what is in it")

    def resolve(self, path, quoted, name):
        """What an include names: a path relative to the root, or None for a header from outside the project."""
        candidates = [path.parent / name] if quoted else []
        candidates += [pathlib.Path("src") / name, pathlib.Path("include") / name, pathlib.Path(name),
                       pathlib.Path("tests") / name]
        for candidate in candidates:
            if (self.root / candidate).is_file():
                return (self.root / candidate).resolve().relative_to(self.root.resolve())
        return None

    def check_include(self, path, line, quoted, name):
        target = self.resolve(path, quoted, name)
        if target is None:
            if quoted or name.startswith("moeway/"):
                self.report(path, line, f"there is no {name}")
            elif CUDA_HEADER.match(name) and not knows_cuda(path) and path.parts[:2] != ("src", "exec"):
                self.report(path, line, f"<{name}>: CUDA is known to src/exec, src/peers/nvshmem, "
                            "src/launch/*.{cu,cuh}, src/transport/{nvlink,nvshmem} and cli/device/cuda_* only")
            return
        top, public = path.parts[0], target.parts[0] == "include"
        if top == "src":
            self.check_layer(path, line, target)
        elif top == "include" and not public:
            self.report(path, line, f"a public header includes {target.as_posix()}")
        elif top == "tests" and target.parts[:2] != ("tests", "reference"):
            self.report(path, line, f"the reference shares no code with what it checks, but includes {target.as_posix()}")
        elif top in OUTSIDE and not public and target.parts[0] != top:
            self.report(path, line, f"{top} uses the public interface only, but includes {target.as_posix()}")

    def check_layer(self, path, line, target):
        layer = path.parts[1]
        if layer not in MAY_INCLUDE:
            self.report(path, line, f"src/{layer} is not a layer: {', '.join(MAY_INCLUDE)} are")
        elif target.parts[0] == "include":
            return
        elif target.parts[0] != "src":
            self.report(path, line, f"the library includes {target.as_posix()}")
        elif target.parts[1] != layer and target.parts[1] not in MAY_INCLUDE[layer]:
            self.report(path, line, f"{layer} may not include {target.parts[1]} ({target.as_posix()})")
        elif knows_cuda(target) and layer != "exec" and not knows_cuda(path):
            self.report(path, line, f"{target.as_posix()} knows CUDA, {path.as_posix()} may not")

    def check_condition(self, path, line, condition):
        # c_api.h alone must find out by itself how a compiler marks what is exported.
        if path.parts[:2] == ("src", "exec") or path.as_posix() == "include/moeway/c_api_types.h":
            return
        for name in COMPILER_NAME.findall(condition):
            self.report(path, line, f"#if on {name}: only src/exec tests compiler or device")

    def check_words(self, path, line, text):
        if path.parts[0] != "src" or path.parts[1] == "exec" or knows_cuda(path):
            return
        for word in CUDA_WORD.findall(text):
            self.report(path, line, f"{word}: only src/exec speaks to the device")

    def check_link(self, path):
        if not path.is_file():
            return
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"-lcuda\b|CUDA::cuda_driver|libcuda\.so", line.split("#")[0]):
                self.report(path.relative_to(self.root), number,
                            "a program linked with the CUDA driver does not start where there is none")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    violations = Checker(root).run()
    for violation in violations:
        print(violation)
    print(f"layers: {len(violations)} violations" if violations else "layers: nothing to report")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
