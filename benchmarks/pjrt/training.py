"""Compares training on PJRT devices with training on an emulated TPU.

    python -m benchmarks.pjrt.training [--only mlp] [--rounds 3] [--seconds 2.5]

Both train with the TPU graph on eight cores: those of an emulated TPU, whose computation XLA
compiles, and JAX's CPU devices, with 1, 10 and 40 steps in a dispatch. Each measurement runs in its
own process, and the sides take turns in each round. The benchmark prints the median time of a step,
and the ratio to the time on the emulated TPU: the median of the ratios of all rounds. The goal is
at most 1.5 with 40 steps in a dispatch.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping

from rich.console import Console

from benchmarks.train import rounds
from benchmarks.train.cases import Case, Side
from tpuserve.files.disk_cache import EXECUTABLES_VARIABLE

CORES = 8
STEPS = (1, 10, 40)
_EMULATED = "emulated"
_MODELS: Mapping[str, str] = {
    "mlp": f"MLP, global batch 32 on {CORES} cores",
    "cnn": f"MNIST CNN, global batch 32 on {CORES} cores",
}


def main() -> None:
    """Measure, and print the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(_MODELS), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.5)
    arguments = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        cases = [
            make_case(model, title, cache)
            for model, title in _MODELS.items()
            if not arguments.only or model in arguments.only
        ]
        results = rounds.measure_cases(
            cases, arguments.rounds, arguments.seconds, None, Console(stderr=True)
        )
    for result in results:
        print_times(result)
    print(f"load average {os.getloadavg()[0]:.1f}")
    if any(result.failures for result in results):
        sys.exit(1)


def make_case(model: str, title: str, cache: str) -> Case:
    """Return the case of a model.

    Args:
      model: the name of the model in `benchmarks.train.program`.
      title: the description of the model.
      cache: the directory in which compiled steps are kept, so that only the first round compiles.
    """
    pjrt = {
        "TPUSERVE_TPU_RUNTIME": "pjrt",
        "TPUSERVE_PJRT_PLATFORM": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={CORES}",
        EXECUTABLES_VARIABLE: cache,
    }
    sides = {
        _EMULATED: Side(
            arguments=("--compile=yes", f"--iterations_per_loop={STEPS[-1]}"),
            environment={"TPUSERVE_EMULATED_TPU": str(CORES)},
        )
    }
    for steps in STEPS:
        sides[f"PJRT, {steps} a dispatch"] = Side(
            arguments=(f"--iterations_per_loop={steps}",), environment=pjrt
        )
    common = (f"--model={model}", "--use_tpu", "--batch_size=32", f"--warmup_steps={STEPS[-1]}")
    return Case(title, common, sides, ())


def print_times(result: rounds.Result) -> None:
    """Print the median time of a step of each side, and its ratio to the emulated TPU's."""
    print(result.case.title)
    for name in result.case.sides:
        if name in result.failures:
            print(f"  {name}: failed: {result.failures[name]}")
            continue
        times = [measured[name]["ms_per_step"] for measured in result.rounds]
        line = f"  {name}: {statistics.median(times):.2f} ms a step"
        if name != _EMULATED and _EMULATED not in result.failures:
            ratios = [
                measured[name]["ms_per_step"] / measured[_EMULATED]["ms_per_step"]
                for measured in result.rounds
            ]
            line += f", {statistics.median(ratios):.2f} of the time on the emulated TPU"
            line += f" ({min(ratios):.2f} to {max(ratios):.2f})"
        print(line)


if __name__ == "__main__":
    main()
