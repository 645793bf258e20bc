"""Metagraphs prepared in a process of their own, while this one goes on with what it does."""

import contextlib
import dataclasses
import importlib.util
import logging
import os
import pickle
import signal
import subprocess
import sys
from types import ModuleType
from typing import IO, Any

from tpuserve.errors import TpuserveError
from tpuserve.prepared import Prepared, Request, prepare

# It imports from where this process does, and not from whatever directory that stands in.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from tpuserve.prepare_apart import main; main()"
_COMMAND = (sys.executable, "-I", "-c", _PROGRAM)
# It gets what the others leave, and on an idle machine that is all.
_NICE = 15

logger = logging.getLogger(__name__)


def prepare_apart(asked: Request) -> Prepared:
    """What `tpuserve.prepared.prepare` gives, made in another process.

    Where that is not to be had, or what is asked for needs TensorFlow itself, it is made here.

    Raises:
      TpuserveError: as of `prepare`.
    """
    # Lowering asks for TensorFlow's ops.
    if asked.hardware.is_emulated:
        return prepare(asked)
    try:
        answer = _ask(asked)
    except (OSError, EOFError, pickle.UnpicklingError) as error:
        logger.warning("%s: prepared in this process: %r", asked.directory, error)
        return prepare(asked)
    if isinstance(answer, TpuserveError):
        raise answer
    return answer


def _ask(asked: Request) -> Prepared | TpuserveError:
    with subprocess.Popen(
        [*_COMMAND, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(asked, process.stdin)
            process.stdin.close()
            return _receive(process.stdout)
        finally:
            process.kill()


def _receive(stream: IO[bytes]) -> Prepared | TpuserveError:
    answer, count = pickle.load(stream)
    if isinstance(answer, Prepared):
        # One by one: to take one in keeps all else waiting.
        return dataclasses.replace(answer, pieces=tuple(pickle.load(stream) for _ in range(count)))
    assert isinstance(answer, TpuserveError)
    return answer


def _send(answer: Prepared | TpuserveError, stream: IO[bytes]) -> None:
    if isinstance(answer, TpuserveError):
        answer.__cause__ = answer.__context__ = None
        pickle.dump((answer, 0), stream)
        return
    pickle.dump((dataclasses.replace(answer, pieces=()), len(answer.pieces)), stream)
    for each in answer.pieces:
        pickle.dump(each, stream)


def _only_messages() -> None:
    """Has TensorFlow's messages be imported without TensorFlow, which would take seconds."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is not None and spec.submodule_search_locations is not None:
        package: Any = ModuleType("tensorflow")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["tensorflow"] = package


def main() -> None:
    """Answers the one request on standard input: that is all that the other process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    _only_messages()
    answer: Prepared | TpuserveError
    try:
        answer = prepare(pickle.load(sys.stdin.buffer))
    except TpuserveError as error:
        answer = error
    # Who asked may be gone.
    with contextlib.suppress(BrokenPipeError):
        _send(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()
