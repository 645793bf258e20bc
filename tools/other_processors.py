"""Runs the numeric tests as machines with other processors would run them.

    python -m tools.other_processors

Two pytest processes run at a time, on two idle cores for about seven minutes. The first
configuration differs most from `make test`, which runs without restrictions: TensorFlow without
oneDNN, XLA at SSE4.2, and one thread, so that the kernels, the vector length and the order of sums
all differ. Every numeric test runs there, except those of whole programs.

The other configurations restrict oneDNN, which changes the order of sums only a little, so they run
the tests in which a rounding error can grow: those that train for many steps and compare the result
with another run. Each of these tests runs with oneDNN at SSE4.1 or at AVX2. A test that compares
the results of a few operations has nothing in which an error could grow. Of the tests of whole
programs, only those run that compare results with numbers. Variants without a TPU, and programs
whose results must only pass a limit by far, run in `make test` alone.

tests/conformance/test_processor.py runs in each process, and proves that the settings take effect.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_PROBE = "tests/conformance/test_processor.py"
_PROGRAM_FILES = (
    "tests/examples",
    "tests/trainer/compat/test_estimator_programs.py",
    "tests/trainer/compat/test_keras_question.py",
    "tests/trainer/compat/test_own_session_programs.py",
)
_PROGRAM_TESTS = (
    "tests/examples/test_examples.py",
    "--deselect=tests/examples/test_examples.py::"
    "test_a_program_that_disables_tensorflow_2_behavior_trains_and_exports",
    "tests/trainer/compat/test_estimator_programs.py",
    "tests/trainer/compat/test_keras_question.py",
    "tests/trainer/compat/test_own_session_programs.py",
    "-k=not [0] and not cpu",
)
_ALL_BUT_PROGRAMS = ("tests", *(f"--ignore={path}" for path in _PROGRAM_FILES))


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
    arguments: Sequence[str]


# Turn oneDNN on: by default TensorFlow uses it only on processors with AVX-512 or newer
# instructions.
_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "1"}
_OLDEST = {"TF_ENABLE_ONEDNN_OPTS": "0", "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
# Leave out the bfloat16 tests where oneDNN is restricted. TensorFlow asks the processor, and not
# oneDNN, whether bfloat16 is supported, and aborts if oneDNN may not use the instructions. A
# processor without the instructions has no such conflict.
_WITHOUT_BFLOAT16 = "-k=not bfloat16"
CONFIGURATIONS = (
    Configuration(
        "TensorFlow without oneDNN, XLA at SSE4.2, one thread", 1, _OLDEST, _ALL_BUT_PROGRAMS
    ),
    Configuration(
        "oneDNN at AVX2, XLA at SSE4.2, one thread",
        1,
        {**_ONEDNN, "ONEDNN_MAX_CPU_ISA": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"},
        (
            _PROBE,
            "tests/conformance/test_replicated_training.py",
            "tests/trainer/keras/test_optimizers.py",
            _WITHOUT_BFLOAT16,
        ),
    ),
    Configuration(
        "oneDNN at SSE4.1, XLA at AVX2, two threads",
        2,
        {**_ONEDNN, "ONEDNN_MAX_CPU_ISA": "SSE41", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
        (
            _PROBE,
            "tests/conformance/test_exact_training.py",
            "tests/trainer/backends/tpu/test_training.py",
            "tests/trainer/keras/test_conversion.py",
            "tests/trainer/keras/test_fit.py",
            _WITHOUT_BFLOAT16,
        ),
    ),
    Configuration(
        "programs, TensorFlow without oneDNN, XLA at SSE4.2, two threads",
        2,
        _OLDEST,
        (_PROBE, *_PROGRAM_TESTS),
    ),
)


def run_numeric_tests(configuration: Configuration) -> "subprocess.CompletedProcess[str]":
    """Run the tests marked `numeric` with the environment and processors of a configuration."""
    available = sorted(os.sched_getaffinity(0))
    # Let the first two configurations, which run side by side, have a processor each.
    first = CONFIGURATIONS.index(configuration) % len(available)
    processors = set((available[first:] + available[:first])[: configuration.processors])
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
