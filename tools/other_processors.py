"""Runs the numeric tests as machines with other processors would run them.

    python -m tools.other_processors

Two pytest processes run at a time. Together with `make test`, which runs without restrictions, the
configurations cover oneDNN switched off, at SSE4.1 and at AVX2, XLA at SSE4.2 and at AVX2, and one
and two processors. tests/conformance/test_processor.py runs in each process, and proves that the
settings take effect. The tests of whole programs take minutes, and run in the configuration that
differs most from `make test`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

PROGRAM_TESTS = (
    "tests/examples",
    "tests/trainer/compat/test_estimator_programs.py",
    "tests/trainer/compat/test_keras_question.py",
    "tests/trainer/compat/test_own_session_programs.py",
)
_PROBE = "tests/conformance/test_processor.py"
_WITHOUT_PROGRAMS = ("tests", *(f"--ignore={path}" for path in PROGRAM_TESTS))


@dataclass(frozen=True)
class Configuration:
    """An emulated processor: the environment and the tests of one pytest process.

    Attributes:
      name: The name to print.
      processors: The number of processors that the process may use, and of threads that TensorFlow
        starts.
      environment: Environment variables of TensorFlow, oneDNN and XLA.
      arguments: pytest's arguments that select the tests.
    """

    name: str
    processors: int
    environment: Mapping[str, str]
    arguments: Sequence[str] = _WITHOUT_PROGRAMS


# Leave out the bfloat16 tests where oneDNN is restricted. TensorFlow asks the processor, and not
# oneDNN, whether bfloat16 is supported, and aborts if oneDNN may not use the instructions. A
# processor without the instructions has no such conflict.
_WITHOUT_BFLOAT16 = (*_WITHOUT_PROGRAMS, "-k", "not bfloat16")
_OLDEST = {"TF_ENABLE_ONEDNN_OPTS": "0", "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
CONFIGURATIONS = (
    Configuration(
        "oneDNN at SSE4.1, XLA at AVX2, two threads",
        2,
        {"ONEDNN_MAX_CPU_ISA": "SSE41", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
        _WITHOUT_BFLOAT16,
    ),
    Configuration(
        "oneDNN at AVX2, XLA at SSE4.2, one thread",
        1,
        {"ONEDNN_MAX_CPU_ISA": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"},
        _WITHOUT_BFLOAT16,
    ),
    Configuration("TensorFlow without oneDNN, XLA at SSE4.2, one thread", 1, _OLDEST),
    Configuration(
        "the same with two threads, programs", 2, _OLDEST, arguments=(_PROBE, *PROGRAM_TESTS)
    ),
)


def run_numeric_tests(configuration: Configuration) -> "subprocess.CompletedProcess[str]":
    """Run the tests marked `numeric` with the environment and processors of a configuration."""
    available = sorted(os.sched_getaffinity(0))
    processors = set(available[: configuration.processors])
    environment = {
        **os.environ,
        **configuration.environment,
        "TPUSERVE_TEST_PROCESSORS": str(len(processors)),
    }
    options = ["-m", "numeric", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *configuration.arguments],
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, processors),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def main() -> None:
    """Run all configurations. Print a line for each, and the output of each failed run."""
    start = time.monotonic()
    has_failed = False
    with ThreadPoolExecutor(2) as executor:
        futures = [
            executor.submit(run_numeric_tests, configuration) for configuration in CONFIGURATIONS
        ]
        for configuration, future in zip(CONFIGURATIONS, futures, strict=True):
            result = future.result()
            lines = result.stdout.strip().splitlines() or ["no output"]
            print(f"{configuration.name}: {lines[-1]}", flush=True)
            if result.returncode:
                has_failed = True
                print(result.stdout, flush=True)
    print(f"{time.monotonic() - start:.0f} s in all")
    raise SystemExit(1 if has_failed else 0)


if __name__ == "__main__":
    main()
