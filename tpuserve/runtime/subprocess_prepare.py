"""Metagraphs prepared in a process of their own, while this one goes on with what it does."""

import contextlib
import dataclasses
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from tpuserve.errors import ModelLoadError, TpuserveError
from tpuserve.runtime import tensorflow_stub
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan
from tpuserve.saved_model import proto_file

# It gets what the others leave, and on an idle machine that is all: from the start, since most of
# what it does may be to import.
_NICE = 15
# On Linux a session may be scheduled as one, and then only its own number counts.
_SESSION_NICE_FILE = "/proc/self/autogroup"
# A process without privileges is asked to try again within a tenth of a second after any other.
_TRIES, _TRY_SECONDS = 30, 0.1
_GO_LAST = f"""
import os, sys, time
os.nice({_NICE})
for _ in range({_TRIES}):
    try:
        with open("{_SESSION_NICE_FILE}", "w") as file:
            file.write("{_NICE}")
    except BlockingIOError:
        time.sleep({_TRY_SECONDS})
    except OSError:
        break
    else:
        break
"""
# It imports from where this process does, and not from whatever directory that stands in.
_PROGRAM = f"""{_GO_LAST}
sys.path[:] = sys.argv[1:]
from tpuserve.runtime.subprocess_prepare import main
main()
"""
_COMMAND = (sys.executable, "-I", "-c", _PROGRAM)
# Of what is short of memory, the kernel ends the one with the highest: this, and not who asks.
_OOM_FILE, _OOM_SCORE = "/proc/self/oom_score_adj", 1000
# A smaller SavedModel is prepared in milliseconds, of which few pass without a turn for others;
# another process takes a hundred to begin.
_SMALL_BYTES = 1 << 16

# From the end of its answer to its own.
_END_SECONDS = 5

logger = logging.getLogger(__name__)


def make_load_plan_in_subprocess(asked: LoadRequest) -> LoadPlan:
    """What `tpuserve.runtime.load_plan.make_load_plan` gives, made in another process.

    Where that is not to be had or not worth it, it is made here.

    Raises:
      ModelLoadError: the other process was ended from outside, as it is where memory is short.
      TpuserveError: as of `prepare`.
    """
    if _is_small(asked.directory):
        return make_load_plan(asked)
    try:
        answer = _ask(asked)
    except TpuserveError:
        raise
    except Exception as error:  # whatever a process that is not as expected sends
        logger.warning("%s: prepared in this process: %r", asked.directory, error)
        return make_load_plan(asked)
    if isinstance(answer, TpuserveError):
        raise answer
    return answer


def _is_small(directory: Path) -> bool:
    with contextlib.suppress(TpuserveError, OSError):
        return proto_file.find_saved_model_file(directory).stat().st_size <= _SMALL_BYTES
    return True


def _ask(asked: LoadRequest) -> LoadPlan | TpuserveError:
    # Lowering asks for TensorFlow's ops.
    ops = tensorflow_stub.serialized_op_list() if asked.hardware.is_emulated else b""
    with subprocess.Popen(
        [*_COMMAND, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((asked, ops), process.stdin)
            process.stdin.flush()
            return _receive(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(_END_SECONDS) == -signal.SIGKILL:
                    # What ends that one would end this one next.
                    raise ModelLoadError(
                        f"cannot load {asked.directory}: the process that prepares it was killed, "
                        f"as the kernel does where memory is short. Give the server more memory."
                    ) from error
            raise
        finally:
            process.kill()
            # What it has not taken would be sent once more, and that be the error that is raised.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def _receive(stream: IO[bytes]) -> LoadPlan | TpuserveError:
    answer, count = pickle.load(stream)
    if isinstance(answer, LoadPlan):
        # One by one: to take one in keeps all else waiting.
        return dataclasses.replace(answer, pieces=tuple(pickle.load(stream) for _ in range(count)))
    assert isinstance(answer, TpuserveError)
    return answer


def _send(answer: LoadPlan | TpuserveError, stream: IO[bytes]) -> None:
    if isinstance(answer, TpuserveError):
        answer.__cause__ = answer.__context__ = None
        pickle.dump((answer, 0), stream)
        return
    pickle.dump((dataclasses.replace(answer, pieces=()), len(answer.pieces)), stream)
    for each in answer.pieces:
        pickle.dump(each, stream)


def _die_first() -> None:
    with contextlib.suppress(OSError), open(_OOM_FILE, "w") as file:
        file.write(str(_OOM_SCORE))


def _end_with_who_asked() -> None:
    # Nothing more is sent: this is over when the pipe is, with the process at its other end.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main() -> None:
    """Answers the one request on standard input: that is all that the other process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_first()
    tensorflow_stub.install_stub()
    # What else is printed here must not get among the answer.
    with open(os.dup(sys.stdout.fileno()), "wb") as stream:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        answer: LoadPlan | TpuserveError
        try:
            asked, ops = pickle.load(sys.stdin.buffer)
            threading.Thread(target=_end_with_who_asked, daemon=True).start()
            if ops:
                tensorflow_stub.install_op_registry(ops)
            answer = make_load_plan(asked)
        except TpuserveError as error:
            answer = error
        try:
            _send(answer, stream)
            stream.flush()
        except BrokenPipeError:
            # Who asked is gone, and nobody else is to hear of it.
            os._exit(0)
