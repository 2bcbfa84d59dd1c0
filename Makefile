# Shorthands. Everything here is a line or two of CMake; CONTRIBUTING.md shows them.
#
#   JOBS=2            compilers and tests at a time (default: the number of processors)
#   ROUTES=file       routes for `make demo` instead of the built-in router
#   FUZZ_SECONDS=30   how long `make fuzz` runs each of its targets
#   CMAKE_ARGS=...    more arguments for the configure step

JOBS ?= $(shell nproc)
CMAKE_ARGS ?=
FUZZ_SECONDS ?= 30
SLOW_CHECKS = clang-analyzer-core.*,clang-analyzer-cplusplus.*,clang-analyzer-unix.*,performance-unnecessary-value-param
DEMO_ROUTER = --tokens 128 --rounds 20
DEMO_ROUTES = --routes "$(ROUTES)" --rounds 20

.PHONY: help demo build test asan tsan fuzz cuda bench lint format tidy analyze clean

help:
	@echo "make demo    set up, build, and run dispatch and combine between 8 ranks, every value checked;"
	@echo "             on GPUs if there are some and nvcc is there, else on the CPU"
	@echo "make test    set up, build and run the tests"
	@echo "make build   build the library, the command line and the examples into build/release"
	@echo "make asan    the tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make tsan    the tests under ThreadSanitizer"
	@echo "make fuzz    whatever is read from outside, given any bytes, FUZZ_SECONDS each (needs clang)"
	@echo "make cuda    build what needs nvcc: the library with NVLink, the command line and the GPU tests"
	@echo "make bench   build the benchmarks into build/release/bench"
	@echo "make lint    format, layers, shell scripts, clang-tidy"
	@echo "make analyze clang-tidy with the checks that take long, for a release"
	@echo "make format  format the sources in place"
	@echo "make clean   remove build/"

demo:
	tools/setup.sh build
	JOBS=$(JOBS) CMAKE_ARGS="$(CMAKE_ARGS)" tools/demo.sh $(if $(ROUTES),$(DEMO_ROUTES),$(DEMO_ROUTER))

build:
	tools/setup.sh build
	cmake --preset release -DMOEWAY_BUILD_TESTS=OFF $(CMAKE_ARGS)
	cmake --build --preset release -j $(JOBS)

test:
	tools/setup.sh test
	cmake --preset release -DMOEWAY_BUILD_TESTS=ON $(CMAKE_ARGS)
	cmake --build --preset release -j $(JOBS)
	tools/run_tests.sh release $(JOBS)

asan:
	tools/setup.sh test
	cmake --preset asan-ubsan $(CMAKE_ARGS)
	cmake --build --preset asan-ubsan -j $(JOBS)
	tools/run_tests.sh asan-ubsan $(JOBS)

tsan:
	tools/setup.sh test
	cmake --preset tsan $(CMAKE_ARGS)
	cmake --build --preset tsan -j $(JOBS)
	tools/run_tests.sh tsan $(JOBS)

fuzz:
	tools/setup.sh fuzz
	cmake --preset fuzz $(CMAKE_ARGS)
	cmake --build --preset fuzz -j $(JOBS)
	tools/fuzz.sh build/fuzz $(FUZZ_SECONDS) $(JOBS)

cuda:
	tools/setup.sh test
	cmake --preset cuda -DMOEWAY_BUILD_TESTS=ON $(CMAKE_ARGS)
	cmake --build --preset cuda -j $(JOBS)

bench:
	tools/setup.sh bench
	cmake --preset release -DMOEWAY_BUILD_BENCH=ON $(CMAKE_ARGS)
	cmake --build --preset release -j $(JOBS)

lint:
	tools/setup.sh lint
	tools/format.sh check
	python3 tools/check_layers.py
	shellcheck tools/*.sh tests/*/*.sh .ci/run
	$(MAKE) tidy

# Configured, not built: only the compiler's commands are needed.
tidy:
	cmake --preset tidy
	tools/tidy.sh build/tidy

# File by file, since the analyzer looks at the file that it is given and no other.
analyze:
	tools/setup.sh lint
	cmake --preset tidy -DCMAKE_UNITY_BUILD=OFF
	tools/tidy.sh build/tidy "$(SLOW_CHECKS)"

format:
	tools/setup.sh lint
	tools/format.sh fix

clean:
	rm -rf build
