import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tpuserve.compilation import compiler, worker
from tpuserve.compilation.cache import CompileCache
from tpuserve.compilation.compiler import Compiler
from tpuserve.compilation.stats import CompileResult
from tpuserve.errors import ExtraNotInstalled


def test_a_missing_package_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler, "_REQUIRED_PACKAGES", ("json", "no_such_package"))
    with pytest.raises(
        ExtraNotInstalled, match="needs no_such_package. Run: pip install"
    ) as exc_info:
        Compiler()
    assert "\n" not in str(exc_info.value)


@pytest.mark.slow
def test_an_invalid_module_is_an_error_and_no_crash() -> None:
    with Compiler(processes=1) as tpu_compiler:
        outcomes = tpu_compiler.compile({"rubbish": b"no module"}, [("rubbish", "v5e:1x1")])
    error = outcomes["rubbish", "v5e:1x1"].error
    assert error is not None
    assert "\n" not in error.splitlines()[0]


_INTERRUPTED = """
from tpuserve.compilation.compiler import Compiler
with Compiler(processes=1) as compiler:
    from loky.backend import resource_tracker
    resource_tracker.register("/loky-of-nobody", "semlock")
"""


def test_leaked_semaphores_are_removed_without_a_warning() -> None:
    result = subprocess.run([sys.executable, "-c", _INTERRUPTED], stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr) == (0, b"")


def dies_of(module: bytes, topology: str) -> CompileResult:
    """Stand in for a compiler that crashes its process on the module b"deadly"."""
    if module == b"deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return CompileResult(error=f"{module.decode()} for {topology}")


@pytest.mark.slow
def test_a_worker_that_dies_fails_only_its_own_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(worker, "compile_module", dies_of)
    calls: list[None] = []
    modules = {"a": b"first", "b": b"deadly", "c": b"last"}
    with Compiler(processes=1, cache=CompileCache(tmp_path)) as tpu_compiler:
        outcomes = tpu_compiler.compile(
            modules, [(module, "v5e:1x1") for module in modules], lambda: calls.append(None)
        )
        assert len(calls) == 3
        # Jobs of later calls are not affected.
        again = tpu_compiler.compile({"a": b"first"}, [("a", "v6e:1x1")])
    assert again["a", "v6e:1x1"].error == "first for v6e:1x1"
    assert outcomes["a", "v5e:1x1"].error == "first for v5e:1x1"
    assert outcomes["c", "v5e:1x1"].error == "last for v5e:1x1"
    assert outcomes["b", "v5e:1x1"].error == compiler.WORKER_DIED
    # A crash is not cached, because its cause, such as a lack of memory, may have passed.
    with Compiler(processes=1, cache=CompileCache(tmp_path)) as tpu_compiler:
        assert tpu_compiler.find_cached("b", "v5e:1x1") is None
        assert tpu_compiler.find_cached("a", "v5e:1x1") is not None
