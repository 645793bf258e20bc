"""Starts a subprocess that plans how this process loads a model.

While the subprocess plans, this process can answer requests.
"""

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tpuserve.errors import Code, CodedError, TpuserveError
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan
from tpuserve.runtime.tensorflow_stub import install_op_registry, install_stub, serialized_op_list
from tpuserve.saved_model import proto_file
from tpuserve.select import XLA_RUNTIME

if TYPE_CHECKING:
    pass


# The nice value of the subprocess, with which it gets only the processor time that other processes
# leave.
_NICE = 15
# The file that sets the nice value of the subprocess's POSIX session. Linux may schedule all
# processes of a session as one autogroup. Then only the nice value of the autogroup counts.
_SESSION_NICE_FILE = "/proc/self/autogroup"
# How many times the subprocess tries to set the autogroup's nice value, and the time between two
# attempts in seconds. The kernel allows an unprivileged process only one change in 0.1 seconds.
_TRIES, _RETRY_SECONDS = 30, 0.1
_LOWER_PRIORITY = f"""
import os, sys, time
os.nice({_NICE})
for _ in range({_TRIES}):
    try:
        with open("{_SESSION_NICE_FILE}", "w") as file:
            file.write("{_NICE}")
    except BlockingIOError:
        time.sleep({_RETRY_SECONDS})
    except OSError:
        break
    else:
        break
"""
# The Python code that the subprocess runs. Its command-line arguments are the sys.path of this
# process, so that both processes import the same packages.
_PROGRAM = f"""{_LOWER_PRIORITY}
sys.path[:] = sys.argv[1:]
from tpuserve.runtime.subprocess_prepare import main
main()
"""
_COMMAND: tuple[str, ...] = (sys.executable, "-I", "-c", _PROGRAM)
# The file with the out-of-memory score of a process, and the highest score. When memory is short,
# the kernel kills the process with the highest score.
_OOM_FILE, _OOM_SCORE = "/proc/self/oom_score_adj", 1000
# The largest saved_model.pb, in bytes, that this process reads itself to make the load plan. That
# takes a few milliseconds, while the start of a subprocess takes 100 milliseconds.
_SMALL_BYTES = 1 << 16

# The longest wait for the exit code of a subprocess whose output has ended, in seconds.
_EXIT_SECONDS = 5

logger = logging.getLogger(__name__)


def make_load_plan_in_subprocess(request: LoadRequest) -> LoadPlan:
    """Run `make_load_plan` in a subprocess.

    `make_load_plan` runs in this process instead if the model is small, or if the subprocess fails.

    Raises:
      CodedError: the subprocess was killed, as the kernel does when memory is short.
    """
    if _is_small(request.directory):
        return make_load_plan(request)
    try:
        result = _run_subprocess(request)
    except TpuserveError:
        raise
    except Exception as error:  # Unpickling damaged output of the subprocess may raise any error.
        logger.warning(
            "%s: prepared in this process, because the subprocess failed: %r",
            request.directory,
            error,
        )
        return make_load_plan(request)
    if isinstance(result, TpuserveError):
        raise result
    return result


def _is_small(directory: Path) -> bool:
    with contextlib.suppress(TpuserveError, OSError):
        return proto_file.find_saved_model_file(directory).stat().st_size <= _SMALL_BYTES
    return True


def _run_subprocess(request: LoadRequest) -> LoadPlan | TpuserveError:
    # If TPU ops may have to be replaced by CPU ops, send the definitions of TensorFlow's ops with
    # the request. The replacement needs them, and the subprocess does not import TensorFlow.
    hardware = request.hardware
    lowers = request.runtime == XLA_RUNTIME or (
        hardware.has_tpu and not hardware.is_run_by_tensorflow
    )
    op_list = serialized_op_list(request.imported_ops) if lowers else b""
    with subprocess.Popen(
        [*_COMMAND, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((request, op_list), process.stdin)
            process.stdin.flush()
            result = pickle.load(process.stdout)
            assert isinstance(result, LoadPlan | TpuserveError)
            return result
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(_EXIT_SECONDS) == -signal.SIGKILL:
                    # The kernel has probably killed the subprocess because memory is short. Do not
                    # plan the load in this process, which would then run out of memory too.
                    raise CodedError(
                        f"cannot load {request.directory}: the process that prepares it was "
                        f"killed, as the kernel does where memory is short. Give the server more "
                        f"memory.",
                        Code.INTERNAL,
                    ) from error
            raise
        finally:
            process.kill()
            # `close` writes the rest of the buffer to the pipe. If the subprocess has ended, this
            # raises a BrokenPipeError. Suppress it, so that it does not hide the original error.
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def _raise_oom_score() -> None:
    with contextlib.suppress(OSError), open(_OOM_FILE, "w") as file:
        file.write(str(_OOM_SCORE))


def _exit_with_parent() -> None:
    # End this subprocess when its parent, the server, exits. The parent sends nothing more, so the
    # read returns only when the parent closes the pipe or exits.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main(*, use_stub: bool = True) -> None:
    """Read a LoadRequest from standard input; write its LoadPlan or error to standard output.

    This is the main function of the subprocess.

    Args:
      use_stub: whether to use a stub in place of TensorFlow; False imports TensorFlow, which takes
        longer (benchmarks/serve/lifecycle/swap.py compares the two).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _raise_oom_score()
    if use_stub:
        install_stub()
    # Redirect standard output to standard error, and write the result to a copy of the original
    # standard output. So text that other code prints does not get into the result.
    with open(os.dup(sys.stdout.fileno()), "wb") as stream:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        result: LoadPlan | TpuserveError
        try:
            request, op_list = pickle.load(sys.stdin.buffer)
            threading.Thread(target=_exit_with_parent, daemon=True).start()
            if op_list and use_stub:
                install_op_registry(op_list)
            result = make_load_plan(request)
        except TpuserveError as error:
            error.__cause__ = error.__context__ = None
            result = error
        try:
            pickle.dump(result, stream)
            stream.flush()
        except BrokenPipeError:
            # The parent has exited. Suppress Python's error message about the closed pipe.
            os._exit(0)
