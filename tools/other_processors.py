"""Runs the numeric tests as machines with other processors would run them.

    python -m tools.other_processors

`make test-all` runs all tests as users do, with the processor's own instructions. Here each run of
pytest may have older instructions and no kernels of oneDNN, and has one or two threads. So the
kernels, the lengths of vectors and the order of sums are others. Two runs are made at a time.

    Tests                                    oneDNN's kernels   oneDNN    XLA      Threads
    conformance, tpuserve, embedding         off                SSE4.1    SSE4.2   1
    others of one process                    on                 SSE4.1    SSE4.2   2
    conformance, tpuserve, embedding/PJRT    on                 AVX2      AVX2     2
    others of one process                    off                AVX2      AVX2     1
    several processes                        on                 AVX2      AVX2     2

Where oneDNN's kernels are off in TensorFlow, oneDNN still multiplies matrices for some of
TensorFlow's own kernels. So its instructions are restricted there too.

So most numeric tests run once with SSE4 and once with AVX2, once with one thread and once with two,
and once with oneDNN's kernels and once without. All tests in all combinations would take more than
ten minutes on two cores. For the same reason, these tests run in one configuration only:

- Embedding tables on the CPU and on an emulated TPU run with SSE4, and on PJRT devices with AVX2.
- Exports run on the emulated TPU with SSE4, and through the runtime "xla" with AVX2.
- Tests that have the package as a parameter run for keras with SSE4, and for tf_keras with AVX2.
- Tests of several processes, each of which takes seconds to start.
- Tests of bfloat16, where oneDNN's kernels are off. TensorFlow asks the processor, and not oneDNN,
  whether bfloat16 is supported, and aborts if oneDNN may not use the instructions. A processor
  without the instructions has no such conflict.

Whole programs and the outputs in documents run in `make test-all` alone.

tests/test_processor.py runs in each process, and proves that the settings take effect.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

_PROBE = "tests/test_processor.py"
_PROGRAM_FILES = (
    "tests/examples",
    "tests/trainer/compat/test_estimator_programs.py",
    "tests/trainer/compat/test_keras_question.py",
    "tests/trainer/compat/test_own_session_programs.py",
)
# Tests that start several processes, such as the hosts of a TPU or a server.
_PROCESS_FILES = (
    "tests/server/test_sample.py",
    "tests/trainer/hosts",
)
_ROOMS = ("tests/conformance", "tests/tpuserve")
_EMBEDDING = "tests/trainer/embedding"
_EMBEDDING_ON_PJRT = f"{_EMBEDDING}/test_pjrt.py"
_OTHERS = (
    "tests",
    *(f"--ignore={path}" for path in (*_ROOMS, _EMBEDDING, *_PROGRAM_FILES, *_PROCESS_FILES)),
)


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


_OFF = {"TF_ENABLE_ONEDNN_OPTS": "0"}
# By default, TensorFlow uses these kernels only on processors with AVX-512 or newer instructions.
_ON = {"TF_ENABLE_ONEDNN_OPTS": "1"}
_SSE4 = {"ONEDNN_MAX_CPU_ISA": "SSE41", "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}
# The tests of tf_keras and of its legacy optimizers, in an expression of pytest.
_TF_KERAS = "(tf_keras or legacy)"
CONFIGURATIONS = (
    Configuration(
        "conformance, tpuserve and embedding at SSE4",
        1,
        {**_OFF, **_SSE4},
        (
            _PROBE,
            *_ROOMS,
            _EMBEDDING,
            f"--ignore={_EMBEDDING_ON_PJRT}",
            "-k=not (test_exports and through)",
        ),
    ),
    Configuration(
        "others at SSE4",
        2,
        {**_ON, **_SSE4},
        (*_OTHERS, f"-k=not bfloat16 and not {_TF_KERAS}"),
    ),
    Configuration(
        "conformance, tpuserve and embedding on PJRT at AVX2",
        2,
        {**_ON, **_AVX2},
        (
            _PROBE,
            *_ROOMS,
            _EMBEDDING_ON_PJRT,
            "-k=not bfloat16 and not (test_exports and lowered)",
        ),
    ),
    Configuration(
        "others at AVX2",
        1,
        {**_OFF, **_AVX2},
        (*_OTHERS, f"-k=bfloat16 or {_TF_KERAS} or not ([keras or -keras or keras-)"),
    ),
    Configuration("processes at AVX2", 2, {**_ON, **_AVX2}, (_PROBE, *_PROCESS_FILES)),
)


def run_numeric_tests(configuration: Configuration) -> "subprocess.CompletedProcess[str]":
    """Run the tests marked `numeric` with the environment and processors of a configuration."""
    available = sorted(os.sched_getaffinity(0))
    # Two configurations run side by side: let those with one processor have different ones.
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
    times = os.times()
    processor_seconds = times.children_user + times.children_system
    print(f"{time.monotonic() - start:.0f} s in all, {processor_seconds:.0f} s of processor time")
    raise SystemExit(1 if has_failed else 0)


if __name__ == "__main__":
    main()
