"""A version of jax that lacks a part that compilation uses is named, with the remedy."""

from concurrent.futures import Future
from typing import Any

import pytest

from tpuserve.compilation.compiler import Compiler
from tpuserve.errors import ExtraNotInstalled
from tpuserve.stablehlo import jax_internals


@pytest.mark.slow
def test_the_installed_jax_has_all_parts() -> None:
    assert jax_internals.find_missing_parts() == []


def test_missing_modules_and_attributes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"json": ("dumps", "no_such_function"), "no_such_module": ("anything",)}
    monkeypatch.setattr(jax_internals, "_PARTS", parts)
    assert jax_internals.find_missing_parts() == ["json.no_such_function", "no_such_module"]


class PoolOfAnotherJax:
    """A pool whose workers miss a part of jax."""

    def submit(self, function: Any) -> Future[list[str]]:
        future: Future[list[str]] = Future()
        future.set_result(["jaxlib.xla_client.DeviceList"])
        return future


def test_an_unsupported_jax_is_an_error_that_says_what_to_install() -> None:
    compiler = Compiler(processes=1)
    compiler._pool = PoolOfAnotherJax()
    message = r"jax \S+ and jaxlib \S+ lack jaxlib.xla_client.DeviceList.*pip install 'tpuserve"
    with pytest.raises(ExtraNotInstalled, match=message):
        compiler.describe_targets(["v5e:1x1"])
