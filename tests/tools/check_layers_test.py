"""Each rule of tools/check_layers.py finds a violation planted for it, and says nothing about a tree that keeps it."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_layers  # noqa: E402

# A small tree that keeps every rule.
CLEAN = {
    "include/moeway/c_api_types.h": "#if defined(_MSC_VER)\n#endif\n#ifdef __cplusplus\n#endif\n#include <stddef.h>\n",
    "include/moeway/status.h": "#include <moeway/c_api_types.h>\n",
    "src/base/format.h": "#include <moeway/status.h>\n",
    "src/exec/atomic.h": '#if defined(__CUDACC__)\n#include "exec/cuda/atomic.h"\n#endif\n#include "base/format.h"\n',
    "src/exec/float.h": "#ifdef __CUDACC__\n#include <cuda_fp16.h>\n#endif\n",
    "src/exec/cuda/atomic.h": "#include <cuda/atomic>\nint i = threadIdx.x;\n",
    "src/layout/shape.h": '#include "exec/atomic.h"\n// asm is a word of a comment here, threadIdx too.\n',
    "src/peers/load_store.h": '#include "layout/shape.h"\n',
    "src/peers/nvshmem/peers.h": "#include <nvshmem.h>\n",
    "src/kernels/dispatch.h": '#include "peers/load_store.h"\n#include "row.h"\n',
    "src/kernels/row.h": "#ifndef MOEWAY_ROW\n#endif\n",
    "src/launch/kernels.cu": '#include <cuda_runtime.h>\n#include "exec/cuda/atomic.h"\n#include "kernels/dispatch.h"\n',
    "src/launch/kernels_host.cc": '#include "kernels/dispatch.h"\n',
    "src/transport/host/heap.cc": '#include "peers/load_store.h"\n',
    "src/transport/nvlink/heap.cc": "#include <cuda.h>\n",
    "src/bootstrap/tcp.cc": '#include "base/format.h"\n',
    "src/core/all_to_all.cc": '#include "launch/launch.h"\n#include "bootstrap/tcp.h"\n',
    "src/launch/launch.h": "",
    "src/bootstrap/tcp.h": "",
    "cli/main.cc": '#include <CLI/CLI.hpp>\n#include <moeway/status.h>\n#include "cli/routes.h"\n#include "routes.h"\n',
    "cli/routes.h": "",
    "cli/device/cuda_place.cc": "#include <cuda_runtime.h>\n",
    "tests/reference/oracle.cc": '#include <vector>\n#include "reference/oracle.h"\n',
    "tests/reference/oracle.h": "",
    "CMakeLists.txt": "# never -lcuda\ntarget_link_libraries(moeway PRIVATE Threads::Threads)\n",
}


class CheckLayers(unittest.TestCase):
    def violations(self, extra):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **extra}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check_layers.Checker(folder).run()

    def finds(self, name, text, *words):
        """The file `name` with `text` gives exactly one violation, in that file, and it says all of `words`."""
        found = self.violations({name: text})
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(name + ":"), found)
        for word in words:
            self.assertIn(word, found[0])

    def test_accepts_a_tree_that_keeps_the_rules(self):
        self.assertEqual(self.violations({}), [])

    def test_every_pair_of_layers_follows_the_order(self):
        layers = list(check_layers.MAY_INCLUDE)
        files = {f"src/{layer}/here.h": "" for layer in layers}
        wrong = set()
        for user in layers:
            for used in layers:
                files[f"src/{user}/uses_{used}.cc"] = f'#include "{used}/here.h"\n'
                if used != user and used not in check_layers.MAY_INCLUDE[user]:
                    wrong.add(f"src/{user}/uses_{used}.cc:1: {user} may not include {used} (src/{used}/here.h)")
        self.assertEqual(set(self.violations(files)), wrong)

    def test_the_order_of_layers_has_no_cycle(self):
        for layer, below in check_layers.MAY_INCLUDE.items():
            for other in below:
                self.assertNotIn(layer, check_layers.MAY_INCLUDE[other])
                self.assertLessEqual(check_layers.MAY_INCLUDE[other], below)

    def test_finds_an_include_in_angle_brackets_too(self):
        self.finds("src/base/up.cc", "#include <exec/atomic.h>\n", "base may not include exec")

    def test_finds_an_include_that_climbs(self):
        self.finds("src/base/up.cc", '#include "../exec/atomic.h"\n', "base may not include exec")

    def test_finds_a_folder_that_is_no_layer(self):
        self.finds("src/extra/a.cc", '#include "base/format.h"\n', "src/extra is not a layer")

    def test_finds_a_library_file_that_includes_the_command_line(self):
        self.finds("src/core/a.cc", '#include "cli/routes.h"\n', "the library includes cli/routes.h")

    def test_finds_a_missing_file(self):
        self.finds("src/core/a.cc", '#include "core/nothing.h"\n', "there is no core/nothing.h")
        self.finds("cli/a.cc", "#include <moeway/nothing.h>\n", "there is no moeway/nothing.h")

    def test_finds_cuda_headers_where_cuda_is_not_known(self):
        headers = ("cuda.h", "cuda_runtime.h", "cuda_bf16.h", "cuda/atomic", "cooperative_groups.h", "nvshmem.h")
        text = "".join(f"#include <{header}>\n" for header in headers)
        for name in ("src/kernels/a.h", "src/core/a.cc", "src/launch/a_host.cc", "src/transport/host/a.cc", "include/moeway/a.h",
                     "cli/a.cc"):
            found = self.violations({name: text})
            self.assertEqual(len(found), len(headers), found)
            for violation in found:
                self.assertIn(f"{name}:", violation)
                self.assertIn("CUDA is known to", violation)

    def test_finds_cuda_headers_in_the_command_line_outside_its_own_files(self):
        for name in ("cli/routes.cc", "cli/device/place.cc", "cli/device/cuda_place.h"):
            self.finds(name, "#include <cuda_runtime.h>\n", "CUDA is known to", "cli/device/cuda_*")

    def test_finds_a_detour_to_cuda(self):
        self.finds("src/kernels/a.h", '#include "exec/cuda/atomic.h"\n', "knows CUDA")

    def test_finds_compiler_tests_outside_exec(self):
        conditions = ("#if defined(__CUDA_ARCH__)", "#ifdef __GNUC__", "#ifndef __x86_64__", "#  if __AVX2__",
                      "#if defined(_MSC_VER)")
        text = "".join(condition + "\n#endif\n" for condition in conditions) + "#if 1\n#elif defined(__clang__)\n#endif\n"
        for name in ("src/kernels/a.h", "src/core/a.cc", "cli/a.cc", "include/moeway/a.h"):
            found = self.violations({name: text})
            self.assertEqual(len(found), len(conditions) + 1, found)
            for violation in found:
                self.assertIn("only src/exec tests compiler or device", violation)

    def test_finds_device_words_outside_exec(self):
        self.finds("src/kernels/a.h", "int i = threadIdx.x;\n", "threadIdx")
        self.finds("src/core/a.cc", 'void f() { asm volatile(""); }\n', "asm")

    def test_finds_a_public_header_that_includes_the_library(self):
        self.finds("include/moeway/a.h", '#include "base/format.h"\n', "a public header includes src/base/format.h")

    def test_finds_outsiders_that_look_inside(self):
        for folder in ("cli", "bench", "examples"):
            self.finds(f"{folder}/a.cc", '#include "base/format.h"\n', f"{folder} uses the public interface only")
        self.finds("bench/a.cc", '#include "cli/routes.h"\n', "bench uses the public interface only")

    def test_finds_a_reference_that_shares_code(self):
        for include in ('"base/format.h"', "<moeway/status.h>", '"cli/routes.h"'):
            self.finds("tests/reference/a.cc", f"#include {include}\n", "the reference shares no code")

    def test_finds_files_that_are_too_long(self):
        self.finds("src/core/a.cc", "\n" * (check_layers.MAX_LINES + 1), "401 lines, at most 400")
        self.assertEqual(self.violations({"src/core/a.cc": "\n" * check_layers.MAX_LINES}), [])

    def test_finds_names_that_say_nothing(self):
        for name in ("src/core/string_utils.h", "src/misc.h", "tests/unit/dispatch_v2_test.cc", "tools/helper.py"):
            self.finds(name, "", "says nothing")

    def test_finds_linking_with_the_cuda_driver(self):
        self.finds("cmake/cuda.cmake", "target_link_libraries(moeway PRIVATE CUDA::cuda_driver)\n", "CUDA driver")
        self.finds("cmake/cuda.cmake", "link_libraries(-lcuda)\n", "CUDA driver")
        self.assertEqual(self.violations({"cmake/cuda.cmake": "link_libraries(-lcudart)\n"}), [])


if __name__ == "__main__":
    unittest.main()
