"""Runs a program in this process as Python would run it."""

import atexit
import os
import signal
import sys
import types
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import NoReturn

from trainer.compat import advice, install
from trainer.compat.source.program import Program, set_script_directory

EXIT_FAILED = 1

_PACKAGE = os.path.dirname(__file__)

_is_interrupted = False


def run(program: Program, arguments: list[str], tf1: bool | None) -> NoReturn:
    """Runs the program and exits with its status.

    Its arguments, output, traceback and status are those that Python would give it.

    Args:
      program: what to run.
      arguments: those of the program, without its name.
      tf1: see `install.install`.
    """
    # Handlers run last come first: this one ends the process, after those of the program.
    atexit.register(_end_as_interrupted)
    sys.argv[:] = [str(program.file) if program.spec else program.name, *arguments]
    set_script_directory(program.directories[0])
    main = _main_module(program)
    sys.modules["__main__"] = main
    install.install(program, tf1, "--no-tf1 turns that off" if tf1 is None else "--tf1")
    try:
        exec(program.compile_source(), vars(main))
    except SystemExit:
        raise
    except BaseException as error:
        _report(error)
    sys.exit()


def _main_module(program: Program) -> ModuleType:
    main = ModuleType("__main__")
    file = str(program.file)
    values = {
        "__file__": file,
        "__builtins__": sys.modules["builtins"],
        "__loader__": SourceFileLoader("__main__", file),
        "__annotations__": {},
    }
    if program.spec is not None:
        values |= {
            "__spec__": program.spec,
            "__package__": program.spec.parent,
            "__loader__": program.spec.loader,
            "__cached__": program.spec.cached,
        }
    vars(main).update(values)
    return main


def _report(error: BaseException) -> NoReturn:
    """Says an error as Python says an uncaught one, without frames of ours, and exits."""
    global _is_interrupted
    _strip(error, set())
    sys.excepthook(type(error), error, error.__traceback__)
    advised = advice.get_error_advice(error)
    if advised is not None:
        print(f"tpuserve: {advised}", file=sys.stderr, flush=True)
    _is_interrupted = isinstance(error, KeyboardInterrupt)
    sys.exit(EXIT_FAILED)


def _end_as_interrupted() -> None:
    if _is_interrupted:
        # As Python does, so that a shell that runs the program stops as well.
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def _strip(error: BaseException | None, done: set[int]) -> None:
    if error is None or id(error) in done:
        return
    done.add(id(error))
    error.__traceback__ = _without_ours(error.__traceback__)
    _strip(error.__cause__, done)
    _strip(error.__context__, done)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    kept = []
    while traceback is not None:
        if os.path.dirname(traceback.tb_frame.f_code.co_filename) != _PACKAGE:
            kept.append(traceback)
        traceback = traceback.tb_next
    following = None
    for each in reversed(kept):
        following = types.TracebackType(following, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return following
