"""The error about an unsupported jax names its version, the missing parts and the remedy."""

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from tpuserve.compilation.compiler import Compiler
from tpuserve.errors import ExtraNotInstalled, UnsupportedOnTpu
from tpuserve.pjrt.exported_module import export_module
from tpuserve.stablehlo import jax_internals, translator


def test_the_installed_jax_has_all_parts() -> None:
    assert jax_internals.find_missing_parts() == []


def test_missing_modules_and_attributes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"json": ("dumps", "no_such_function"), "no_such_module": ("anything",)}
    monkeypatch.setattr(jax_internals, "_PARTS", parts)
    assert jax_internals.find_missing_parts() == ["json.no_such_function", "no_such_module"]


def test_missing_parts_are_reported_before_a_module_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jax")
    jax_internals.check_parts.cache_clear()
    monkeypatch.setattr(jax_internals, "_PARTS", {"json": ("no_such_function",)})
    message = r"jax \S+ and jaxlib \S+ lack json.no_such_function, which .* '\.\[pjrt\]'"
    with pytest.raises(ExtraNotInstalled, match=message):
        jax_internals.parse_stablehlo(b"module {}")


class PoolOfAnotherJax:
    """Stands in for a pool of workers whose jax lacks a part that compilation uses."""

    def submit(self, function: Any) -> Future[list[str]]:
        future: Future[list[str]] = Future()
        future.set_result(["jaxlib.xla_client.DeviceList"])
        return future


def test_an_unsupported_jax_is_an_error_that_says_what_to_install() -> None:
    compiler = Compiler(processes=1)
    compiler._pool = PoolOfAnotherJax()
    message = r"jax \S+ and jaxlib \S+ lack jaxlib.xla_client.DeviceList.*pip install '\.\[compile"
    with pytest.raises(ExtraNotInstalled, match=message):
        compiler.describe_targets(["v5e:1x1"])


_ERF = """
module @erf {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %copied = mhlo.copy %x : tensor<3xf32>
    %y = mhlo.erf %copied : tensor<3xf32>
    return %y : tensor<3xf32>
  }
}
"""


@pytest.mark.numeric
def test_a_module_that_tensorflow_writes_as_text_runs_in_jax() -> None:
    jax = pytest.importorskip("jax")

    def generate(stage: str) -> str:
        if stage == "stablehlo_serialized":
            raise ValueError("failed to serialize module")
        return _ERF

    module = translator.generate_stablehlo(generate)
    exported = export_module(module, [jax.ShapeDtypeStruct((3,), np.float32)], "cpu")
    (result,) = jax.jit(exported.call)(np.array([0, 1, -0.5], np.float32))
    # The expected values are erf(1) and erf(1/2), to six decimal places.
    assert np.asarray(result).tolist() == pytest.approx([0, 0.842701, -0.520500], abs=1e-6)


def test_a_text_that_jaxlib_cannot_read_is_an_error_with_the_versions() -> None:
    pytest.importorskip("jax")
    with pytest.raises(UnsupportedOnTpu, match=r"jax \S+ and jaxlib \S+ cannot read a module"):
        jax_internals.parse_stablehlo(b"module { no.such_op }")


def test_aliases_are_the_results_that_are_new_values_of_variables() -> None:
    pytest.importorskip("jax")
    import tensorflow as tf

    read, changed = tf.Variable(2.0), tf.Variable(3.0)

    def find_aliases(step: Any) -> dict[int, int]:
        function = tf.function(step, jit_compile=True, autograph=False)
        generate = function.experimental_get_compiler_ir(tf.TensorSpec([]))
        module = translator.generate_stablehlo(generate)
        return jax_internals.find_aliases(jax_internals.parse_stablehlo(module))

    def assign(x: Any) -> None:
        changed.assign(x)

    def add(x: Any) -> Any:
        product = x * read
        changed.assign_add(product)
        return product

    assert find_aliases(lambda x: x * read) == {}
    assert find_aliases(assign) == {0: 1}
    # The arguments are x and the variables in the order of their first uses.
    assert find_aliases(add) == {1: 2}
