"""Compares serving through XLA with TensorFlow's kernels and with the emulated TPU.

    python -m benchmarks.pjrt.serving [--rounds 5] [--calls 20]

All runtimes are in one process, and take turns in each round. The benchmark prints the medians of
the times of calls at batch sizes 1, 8 and 32 for three models, and of a call with next to no work;
the times to load each model at these batch sizes without and with the executables of an earlier
load, each in a process of its own; and the resident memory of a model with large variables. A ratio
is the median of the ratios of all rounds.
"""

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pjrt import models
from tpuserve import loader, tags
from tpuserve.devices import TpuSystem, jax_client
from tpuserve.loader import LoadedModel
from tpuserve.runtime.loader import load

BATCH_SIZES = (1, 8, 32)
_EMULATED = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)
_PJRT = TpuSystem(tpu_cores=1, hosts=1, pjrt_platform="cpu")
# Name of a runtime → arguments with which `load` loads a model for it.
_RUNTIMES: Mapping[str, Mapping[str, Any]] = {
    "CPU": {"wanted_tags": tags.SERVE, "hardware": TpuSystem()},
    "XLA": {"wanted_tags": tags.SERVE, "hardware": TpuSystem(), "runtime": "xla"},
    "emulated": {"wanted_tags": tags.SERVE_TPU, "hardware": _EMULATED},
    "PJRT": {"wanted_tags": tags.SERVE_TPU, "hardware": _PJRT},
}
_MEGABYTES = 200


def main() -> None:
    """Measure, and print the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--load", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        print(time_load(*arguments.load))
        return
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as base:
        directory = Path(base)
        small = models.save(directory / "add_one", [1], models.add_one)
        print_call_times(
            "next to no work", small, [1], (1,), arguments.rounds, 10 * arguments.calls
        )
        for name, (shape, apply) in models.MODELS.items():
            saved = models.save(directory / name, shape, apply)
            print_call_times(name, saved, shape, BATCH_SIZES, arguments.rounds, arguments.calls)
            print_load_times(name, saved, directory / "cache" / name, arguments.rounds)
        print_memory(models.save(directory / "large", [1], _large))
    print(f"load average {os.getloadavg()[0]:.1f}")


def print_call_times(
    name: str,
    directory: Path,
    shape: Sequence[int],
    batch_sizes: Sequence[int],
    rounds: int,
    calls: int,
) -> None:
    """Print the median time of a call for each runtime and batch size, in microseconds."""
    loaded = {
        runtime: load(directory, batch_sizes=batch_sizes, **arguments)
        for runtime, arguments in _RUNTIMES.items()
    }
    for rows in batch_sizes:
        x = np.random.default_rng(1).random((rows, *shape), np.float32)
        times: dict[str, list[float]] = {runtime: [] for runtime in loaded}
        for index in range(rounds + 1):
            order = list(loaded) if index % 2 else list(reversed(loaded))
            for runtime in order:
                times[runtime].append(_time_calls(loaded[runtime], x, calls))
        for samples in times.values():
            del samples[0]  # Leave out the first round, which warms up.
        medians = ", ".join(f"{name} {statistics.median(times[name]):.0f} us" for name in loaded)
        ratios = ", ".join(
            f"{name}/CPU {_median_ratio(times[name], times['CPU']):.2f}"
            for name in loaded
            if name != "CPU"
        )
        print(f"{name}, batch {rows}: {medians}; {ratios}")
    for model in loaded.values():
        model.close()


def print_load_times(name: str, directory: Path, cache: Path, rounds: int) -> None:
    """Print the median time to load a model for XLA with a new cache, and with a filled one."""
    cold: list[float] = []
    warm: list[float] = []
    for index in range(rounds):
        for times in (cold, warm):
            # Load in a new process, in which jax has not compiled anything yet.
            command = [sys.executable, "-m", __spec__.name, "--load", str(directory)]
            result = subprocess.run(
                [*command, str(cache / str(index))], stdout=subprocess.PIPE, text=True, check=True
            )
            times.append(float(result.stdout))
    print(
        f"{name}, load at {len(BATCH_SIZES)} batch sizes: cold {statistics.median(cold):.2f} s, "
        f"warm {statistics.median(warm):.2f} s; warm/cold {_median_ratio(warm, cold):.2f}"
    )


def time_load(directory: Path, cache: Path) -> float:
    """Return the seconds to load a model for XLA, when TensorFlow and jax are imported."""
    jax_client.list_devices("cpu")
    begin = time.perf_counter()
    load(directory, batch_sizes=BATCH_SIZES, cache_directory=cache, **_RUNTIMES["XLA"]).close()
    return time.perf_counter() - begin


def print_memory(directory: Path) -> None:
    """Print how much a loaded model adds to the resident memory, and what an unload leaves."""
    for runtime in ("CPU", "XLA"):
        # Load the model once before the measurement, to fill the pools of the allocators.
        loader.load(directory, **_RUNTIMES[runtime]).close()
        gc.collect()
        before = _resident_megabytes()
        model = loader.load(directory, **_RUNTIMES[runtime])
        model.run("serving_default", {"x": np.ones((1, 1), np.float32)})
        gc.collect()
        loaded = _resident_megabytes() - before
        model.close()
        del model
        gc.collect()
        residue = _resident_megabytes() - before
        print(
            f"{_MEGABYTES} MB of variables, {runtime}: {loaded:.0f} MB loaded, "
            f"{residue:.0f} MB left after the unload"
        )


def _large(weight: Any, x: Any) -> Any:
    return x @ weight(1, _MEGABYTES << 18)[:, :1]


def _time_calls(model: LoadedModel, x: Any, calls: int) -> float:
    """Return the median time of a call in microseconds."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        model.run("serving_default", {"x": x})
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def _median_ratio(times: Sequence[float], base: Sequence[float]) -> float:
    return statistics.median(seconds / other for seconds, other in zip(times, base, strict=True))


def _resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    main()
