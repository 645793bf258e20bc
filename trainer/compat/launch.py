"""Runs a program in this process as Python would run it."""

import atexit
import os
import re
import signal
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import NoReturn

from tpuserve import devices
from tpuserve.cli import QUIET_LOG_LEVEL
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.lowering.rules import op_table
from tpuserve.stablehlo import xla_errors
from trainer.compat import install
from trainer.compat.source.user_program import UserProgram, set_script_directory

# Matches the error messages in which TensorFlow says that an op has no kernel, or that no device
# can run the op. The group "op" is the op's type.
_NO_KERNEL = re.compile(
    r"(?:No OpKernel was registered to support Op|Cannot assign a device for operation) "
    r"'?(?P<op>\w+)"
)


@dataclass(frozen=True)
class Advice:
    """A text that tells the user of a program what to do about an error.

    Attributes:
      replaces_traceback: whether to print the text instead of the error's tracebacks, because the
        tracebacks show only TensorFlow's code and do not help the user.
    """

    text: str
    replaces_traceback: bool = False


def get_error_advice(error: BaseException) -> Advice | None:
    """Return advice on an error about an op that the device cannot run; None for other errors."""
    message = str(error)
    if isinstance(error, UnsupportedOnTpu):
        return Advice(message, replaces_traceback=True)
    ops = (match["op"] for match in _NO_KERNEL.finditer(message))
    tpu_op = next(filter(op_table.is_tpu_op, ops), None)
    if tpu_op is not None:
        tpu_system = devices.find_tpu_system()
        if tpu_system.has_tpu:
            return None
        return Advice(
            f"the program runs {tpu_op}, which only a TPU can run; {tpu_system}. Emulate a TPU: "
            f"tpuserve run --emulate-tpu 8 SCRIPT."
        )
    unsupported_ops = xla_errors.find_unsupported_ops(message)
    if unsupported_ops and devices.find_emulated_tpu_system() is not None:
        names = ", ".join(f"{op.op} ({op.node})" for op in unsupported_ops)
        return Advice(
            f"a TPU cannot run {names}. Wrap the op in tpu.outside_compilation, or compute it "
            f"outside the TPU computation.",
            replaces_traceback=True,
        )
    return None


EXIT_FAILED = 1

_OUR_DIRECTORY = os.path.dirname(__file__)
# The directories of the code of tpuserve that runs a user's program. The stack frames of this code
# are removed from the program's tracebacks, which then look as if Python had run the program.
_HIDDEN_DIRECTORIES = {
    _OUR_DIRECTORY,
    os.path.join(_OUR_DIRECTORY, "imports"),
    os.path.join(_OUR_DIRECTORY, "source"),
}

_DEBUG_HINT = " `tpuserve --debug run` shows the traceback."

_is_interrupted = False


def run_program(
    program: UserProgram,
    arguments: list[str],
    tf1: bool | None,
    *,
    tf1_packages: Sequence[str] = (),
    shows_tracebacks: bool = False,
) -> NoReturn:
    """Run a program and exit with the program's status.

    Args:
      tf1: whether the program gets the names and the behaviour of TensorFlow 1; None decides by the
        program's source.
      tf1_packages: names of installed packages that get the names of TensorFlow 1.
      shows_tracebacks: whether to print a traceback even for an error about ops that a TPU cannot
        run.
    """
    # Register the exit handler that kills this process after Ctrl-C. It must run last, so register
    # it before the program's handlers: exit handlers run in reverse order of registration.
    atexit.register(_exit_as_interrupted)
    sys.argv[:] = [str(program.file) if program.spec else program.name, *arguments]
    set_script_directory(program.directories[0])
    main = _make_main_module(program)
    sys.modules["__main__"] = main
    tf1_option = "--no-tf1 turns that off" if tf1 is None else "--tf1"
    # Filter the log of TensorFlow's C++ code only if TF_CPP_MIN_LOG_LEVEL has the value that
    # `tpuserve` sets, because another value is the user's choice.
    filters_log = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == QUIET_LOG_LEVEL
    install.install(program, tf1, tf1_option, tf1_packages, filters_log=filters_log)
    try:
        exec(program.compile_source(), vars(main))
    except SystemExit:
        raise
    except BaseException as error:
        _exit_with_error(error, shows_tracebacks=shows_tracebacks)
    sys.exit()


def _make_main_module(program: UserProgram) -> ModuleType:
    """Return a module `__main__` with the attributes that Python gives the main module."""
    main = ModuleType("__main__")
    file = str(program.file)
    attributes = {
        "__file__": file,
        "__builtins__": sys.modules["builtins"],
        "__loader__": SourceFileLoader("__main__", file),
        "__annotations__": {},
    }
    if program.spec is not None:
        attributes |= {
            "__spec__": program.spec,
            "__package__": program.spec.parent,
            "__loader__": program.spec.loader,
            "__cached__": program.spec.cached,
        }
    vars(main).update(attributes)
    return main


def _exit_with_error(error: BaseException, *, shows_tracebacks: bool) -> NoReturn:
    """Print an uncaught error of the program as Python does, then any advice on it, and exit."""
    global _is_interrupted
    error_advice = get_error_advice(error)
    is_explained = error_advice is not None and error_advice.replaces_traceback
    if shows_tracebacks or not is_explained:
        _strip_our_frames(error, set())
        sys.excepthook(type(error), error, error.__traceback__)
    if error_advice is not None:
        hint = "" if shows_tracebacks or not is_explained else _DEBUG_HINT
        print(f"tpuserve: {error_advice.text}{hint}", file=sys.stderr, flush=True)
    _is_interrupted = isinstance(error, KeyboardInterrupt)
    sys.exit(EXIT_FAILED)


def _exit_as_interrupted() -> None:
    """Kill this process with SIGINT if Ctrl-C ended the program."""
    if _is_interrupted:
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _strip_our_frames(error: BaseException | None, stripped: set[int]) -> None:
    """Remove tpuserve's stack frames from the tracebacks of an error, its cause and its context."""
    if error is None or id(error) in stripped:
        return
    stripped.add(id(error))
    error.__traceback__ = _without_our_frames(error.__traceback__)
    _strip_our_frames(error.__cause__, stripped)
    _strip_our_frames(error.__context__, stripped)


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a copy of a traceback without the stack frames of the code that runs the program."""
    entries = []
    while traceback is not None:
        if os.path.dirname(traceback.tb_frame.f_code.co_filename) not in _HIDDEN_DIRECTORIES:
            entries.append(traceback)
        traceback = traceback.tb_next
    result = None
    for entry in reversed(entries):
        result = types.TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result
