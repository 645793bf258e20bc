#!/bin/sh
# Runs the perf_analyzer of .venv-perf, which `make .venv-perf/stamp` sets up, with CUDA's runtime,
# which the program is linked with.
environment=$(dirname "$(readlink -f "$0")")/../.venv-perf
LD_LIBRARY_PATH=$(echo "$environment"/lib/python3*/site-packages/nvidia/cuda_runtime/lib)
export LD_LIBRARY_PATH
exec "$environment/bin/perf_analyzer" "$@"
