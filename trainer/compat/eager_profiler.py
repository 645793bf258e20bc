"""tensorflow.python.eager.profiler, by TensorFlow's profiler of today.

The results are of today's format, which TensorBoard's profiler reads.
"""

import contextlib
import datetime
import tempfile
from pathlib import Path

import tensorflow as tf
from tensorflow.errors import AlreadyExistsError as ProfilerAlreadyRunningError
from tensorflow.errors import UnavailableError as ProfilerNotRunningError
from tensorflow.profiler.experimental import Profile as Profiler
from tensorflow.profiler.experimental.server import start as start_profiler_server

__all__ = [
    "Profiler",
    "ProfilerAlreadyRunningError",
    "ProfilerNotRunningError",
    "save",
    "start",
    "start_profiler_server",
    "stop",
]

_profiler = tf.profiler.experimental
_running: list[tuple[contextlib.ExitStack, Path]] = []


def start() -> None:
    """Start a profile; only one can run at a time."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        _profiler.start(directory)
        _running.append((stack.pop_all(), Path(directory)))


def stop() -> bytes:
    """Stop the profile, and return its result: a serialized XSpace."""
    _profiler.stop()
    stack, directory = _running.pop()
    with stack:
        (result,) = directory.rglob("*.xplane.pb")
        return result.read_bytes()


def save(logdir: str, result: bytes) -> None:
    """Write a result of `stop` below a directory that TensorBoard reads."""
    run = datetime.datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    directory = f"{logdir}/plugins/profile/{run}"
    tf.io.gfile.makedirs(directory)
    with tf.io.gfile.GFile(f"{directory}/local.xplane.pb", "wb") as file:
        file.write(result)
