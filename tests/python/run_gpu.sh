#!/bin/sh
# The tests of the Python package that run on GPUs: whole rounds, the torch operators, both compatible interfaces, streams
# and graphs, with ranks as threads and as processes. Ranks take turns on the GPUs there are; two are meant.
#
#   MOEWAY_LIBRARY=<build with MOEWAY_CUDA=ON>/libmoeway.so tests/python/run_gpu.sh [PYTHON [PYTEST_ARGUMENT...]]
set -eu
cd "$(dirname "$0")"
python=${1:-python3}
if [ $# -gt 0 ]; then shift; fi
"$python" -c 'import torch; assert torch.cuda.is_available(), "torch sees no GPU"'
MOEWAY_TEST_DEVICE=cuda "$python" -B -m pytest -q -rs -p no:cacheprovider test_gpu.py test_rounds.py test_torch.py \
  test_deep_ep.py test_pplx_kernels.py "$@"
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
if [ "$gpus" -lt 2 ]; then echo "SKIPPED: the examples want a GPU for each of two ranks"; exit 0; fi
for example in moe_layer moe_inference; do
  PYTHONPATH="$(cd ../../bindings/python && pwd)${PYTHONPATH:+:$PYTHONPATH}" \
    "$python" -B ../../examples/python/$example.py --device cuda
done
