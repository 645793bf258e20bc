"""Looks for inputs with which a kernel of TensorFlow ends the process of the server.

    python -m tools.fuzz_kernels [--seed SEED] [--cases CASES]

Each case runs a model of one kernel with inputs of ranks 0 to 6, of sizes such as 0 and 1, as a
session of the server runs it. A child process runs many cases, and prints the number of each before
it runs; if the child dies, its last case is reported, and another child goes on behind it. The exit
status is 1 if a case ended a child or took longer than a minute, except for kernels that are known
to die. A kernel that died twice is left out.
"""

import argparse
import contextlib
import inspect
import random
import resource
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import numpy as np

_TYPES = {"x": "float32", "y": "float32", "i": "int32", "j": "int32", "s": "string"}
# Kernels that take only these types of integers.
_WIDE = ("Sparse", "EditDistance", "RaggedTensor", "StringNGrams", "TensorListSplit")
_RANKS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 6)
_LARGE = (2**31 - 1, -(2**31), 2**16)
_STRINGS = (b"", b"1", b"a b", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF")
# A case that takes more memory than this gets an error instead.
_MEMORY = 8 << 30
# These deaths are printed and do not count: a Fourier transform does not survive a length of 0.
_KNOWN = ("FFT fed length", "InverseFFT")
_SECONDS = 60
_MAX_DEATHS = 2


def main() -> int:
    """Run the cases in child processes, and print those that ended one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="chooses the inputs")
    parser.add_argument("--cases", type=int, default=20_000, help="the number of cases")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--without", nargs="*", default=[], help="names of kernels to leave out")
    arguments = parser.parse_args()
    if arguments.first is not None:
        return _run_cases(arguments)
    deaths: Counter[str] = Counter()
    first = 0
    while first < arguments.cases:
        without = [*arguments.without, *(name for name in deaths if deaths[name] >= _MAX_DEATHS)]
        last, status, log = _run_child(arguments, first, without)
        if not status:
            break
        number, _, text = last.partition(" ")
        reason = next((line for line in log if "Check failed" in line), " ".join(log[-3:]))
        print(f"status {status}: {last}\n    {reason}", flush=True)
        deaths[text.partition(":")[0]] += 1
        first = int(number or first) + 1
    print(f"{arguments.cases} cases, {deaths.total()} ended the process")
    return int(any(name not in _KNOWN for name in deaths))


def _run_child(
    arguments: argparse.Namespace, first: int, without: list[str]
) -> tuple[str, int, list[str]]:
    """Run cases until one ends the process.

    Returns:
      The last case, the exit status, and the lines of the log.
    """
    command = [sys.executable, "-m", "tools.fuzz_kernels", f"--seed={arguments.seed}"]
    command += [f"--cases={arguments.cases}", f"--first={first}", "--without", *without]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    log: list[str] = []
    errors = child.stderr
    reader = threading.Thread(target=lambda: log.extend(line.strip() for line in errors))
    reader.start()
    last = ""
    timer = threading.Timer(5 * _SECONDS, child.kill)
    timer.start()
    for line in child.stdout:
        timer.cancel()
        timer = threading.Timer(_SECONDS, child.kill)
        timer.start()
        last = line.strip()
    timer.cancel()
    reader.join()
    return last, child.wait(), log


def _run_cases(arguments: argparse.Namespace) -> int:
    from tools.fuzzed_kernels import KERNELS
    from tpuserve.errors import TpuserveError

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    names = [name for name in KERNELS if name not in arguments.without]
    runners: dict[str, Any] = {}
    for number in range(arguments.first, arguments.cases):
        chance = random.Random(f"{arguments.seed} {number}")
        name = chance.choice(names)
        if name not in runners:
            runners[name] = _make_runner(name, KERNELS[name])
        runner, types = runners[name]
        inputs = {key: _make_input(chance, dtype) for key, dtype in types.items()}
        shown = {
            key: f"{array.dtype}{list(array.shape)} {array.ravel()[:6].tolist()}"
            for key, array in inputs.items()
        }
        print(number, f"{name}: {shown}", flush=True)
        with contextlib.suppress(TpuserveError, MemoryError):
            runner.run(inputs, None, None)
    return 0


def _make_runner(name: str, build: Any) -> tuple[Any, dict[str, str]]:
    """Return a runner of a kernel whose inputs have unknown ranks, and the dtypes of the inputs."""
    import tensorflow as tf

    from tpuserve.graph.loops import has_op
    from tpuserve.runtime.session.session_plan import SIZE_CHECKED_OPS
    from tpuserve.runtime.session.signature_runner import SignatureRunner
    from tpuserve.saved_model.signature import Signature, TensorSpec

    types = {key: _TYPES[key] for key in inspect.signature(build).parameters}
    if name.startswith(_WIDE):
        types = {key: dtype.replace("int32", "int64") for key, dtype in types.items()}
    with tf.Graph().as_default() as graph:
        tensors = {key: tf.compat.v1.placeholder(dtype, None, key) for key, dtype in types.items()}
        output = tf.identity(build(**tensors))
    session = tf.compat.v1.Session(graph=graph)
    inputs = {key: TensorSpec(f"{key}:0", dtype, None) for key, dtype in types.items()}
    signature = Signature(inputs, {"out": TensorSpec(output.name, output.dtype.name, None)})
    checks_sizes = has_op(graph.as_graph_def(), SIZE_CHECKED_OPS)
    return SignatureRunner(session, signature, checks_sizes=checks_sizes), types


def _make_input(chance: random.Random, dtype: str) -> Any:
    if dtype.startswith("int"):
        # Most kernels take integers as a scalar or a vector.
        rank = chance.choice((0, 0, 1, 1, 1, 2, 2, 3))
        shape = [chance.choice((0, 1, 2, 2, 3, 4)) for _ in range(rank)]
        numbers = chance.choice(((0, 1, 2, 3), (-1, 0, 1, 2), (-3, -1, 5, 7), (*_LARGE, 0, 1)))
        values = [chance.choice(numbers) for _ in range(int(np.prod(shape)))]
        return np.array(values, dtype).reshape(shape)
    shape = [chance.choice((0, 1, 1, 2, 3, 4)) for _ in range(chance.choice(_RANKS))]
    if dtype == "string":
        shape = shape[:3]
        words = [chance.choice(_STRINGS) for _ in range(int(np.prod(shape)))]
        return np.array(words, object).reshape(shape)
    floats = chance.choice(((1.0, 0.5, -2.0), (0.0,), (float("nan"), float("inf"), 1e30)))
    size = int(np.prod(shape))
    return np.array([chance.choice(floats) for _ in range(size)], dtype).reshape(shape)


if __name__ == "__main__":
    sys.exit(main())
