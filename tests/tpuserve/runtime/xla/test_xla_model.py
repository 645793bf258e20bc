"""A CPU metagraph runs through XLA where all of it compiles, else in TensorFlow."""

import logging
import re
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import (
    DamagedSavedModel,
    DeadlineExceeded,
    DeviceMemoryExhausted,
    ExtraNotInstalled,
    InvalidTensor,
    ModelExecutionError,
)
from tpuserve.pjrt.device_core import DeviceCore
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.subprocess_prepare import make_load_plan_in_subprocess
from tpuserve.stablehlo.translator import StableHloTranslator

jax = pytest.importorskip("jax")

jax.config.update("jax_platforms", "cpu")

v1 = tf.compat.v1

# Number of elements of x. The outer product of x with itself has 2**48 bytes, more than a process
# can address.
TOO_LARGE = 1 << 23
ROWS = np.array([[1, 2], [3, 4]], np.float32)


class Linear(tf.Module):
    """Computes y = x @ [[1], [10]] + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable([[1.0], [10.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def call(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x @ self.w + 1.0, "x": x}


def save(
    directory: Path, function: Callable[[Any], Any], shape: list[int | None], dtype: Any
) -> Path:
    """Save a SavedModel with one signature, x → y."""
    module = tf.Module()
    signature = [tf.TensorSpec(shape, dtype, name="x")]
    module.call = tf.function(lambda x: {"y": function(x)}, input_signature=signature)
    tf.saved_model.save(module, str(directory), {"serving_default": module.call})
    return directory


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("linear")
    module = Linear()
    tf.saved_model.save(module, str(directory), {"serving_default": module.call})
    return directory


def load_model(directory: Path, **arguments: Any) -> LoadedModel:
    return loader.load(directory, tags.SERVE, TpuSystem(), runtime="xla", **arguments)


def test_variables_of_tensorflow_1_run_through_xla(tmp_path: Path) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=[[1.0], [10.0]], use_resource=False)
        x = v1.placeholder(tf.float32, [None, 2])
        session.run(w.initializer)
        v1.saved_model.simple_save(session, str(tmp_path / "1"), {"x": x}, {"y": x @ w + 1.0})
    model = load_model(tmp_path / "1")
    assert str(model.choice).startswith("{serve} on CPU with the xla runtime")
    assert model.run("serving_default", {"x": ROWS})["y"].tolist() == [[22.0], [44.0]]


def test_signature_runs_through_xla_without_a_variable_in_the_session(linear: Path) -> None:
    # The list keeps arrays of earlier tests alive, so that their number stays.
    before = jax.live_arrays()
    model = load_model(linear)
    assert str(model.choice).startswith("{serve} on CPU with the xla runtime")
    assert len(jax.live_arrays()) == len(before) + 1
    np.testing.assert_array_equal(model.run("serving_default", {"x": ROWS})["y"], [[22.0], [44.0]])
    np.testing.assert_array_equal(model.run("serving_default", {"x": ROWS})["x"], ROWS)
    assert list(model.run("serving_default", {"x": ROWS}, ["x"])) == ["x"]
    model.close()
    assert len(jax.live_arrays()) == len(before)
    with pytest.raises(ModelExecutionError, match="closed"):
        model.run("serving_default", {"x": ROWS})


class Counter(tf.Module):
    """Adds the number of requests so far."""

    def __init__(self) -> None:
        super().__init__()
        self.n = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def call(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x + self.n.assign_add(1.0)}


def test_tensorflow_runs_a_model_that_updates_a_variable(tmp_path: Path) -> None:
    module = Counter()
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.call})
    model = load_model(tmp_path)
    assert "signature 'serving_default' updates a variable (" in model.choice.fallback
    answers = [model.run("serving_default", {"x": ROWS})["y"][0, 0] for _ in range(2)]
    assert answers == [2, 3]
    model.close()


def test_plan_is_made_in_a_subprocess_without_tensorflow(
    linear: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tpuserve.runtime.subprocess_prepare._SMALL_BYTES", 0)
    model = load_model(linear, make_plan=make_load_plan_in_subprocess)
    assert "subprocess failed" not in caplog.text
    assert "xla runtime" in str(model.choice)
    model.close()


def test_wrong_inputs_are_refused_as_by_the_session(linear: Path) -> None:
    model = load_model(linear)
    with pytest.raises(InvalidTensor, match="to be float but int32 is provided"):
        model.run("serving_default", {"x": ROWS.astype(np.int32)})
    with pytest.raises(InvalidTensor):
        model.run("serving_default", {"x": np.ones((2, 3), np.float32)})
    model.close()


def test_batch_sizes_are_compiled_before_the_model_is_loaded(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated: list[Any] = []
    translate = StableHloTranslator.translate

    def counting_translate(self: StableHloTranslator, cluster: Any) -> bytes:
        translated.append(cluster.arguments[0].shape)
        return translate(self, cluster)

    monkeypatch.setattr(StableHloTranslator, "translate", counting_translate)
    model = load_model(linear, batch_sizes=(2, 4))
    assert translated == [(2, 2), (4, 2)]
    model.run("serving_default", {"x": ROWS})
    assert len(translated) == 2
    model.run("serving_default", {"x": np.ones((3, 2), np.float32)})
    assert translated[2:] == [(3, 2)]
    model.close()


def test_second_load_with_a_cache_translates_nothing(
    linear: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    load_model(linear, batch_sizes=(1, 2, 4), cache_directory=tmp_path).close()

    def refuse(self: StableHloTranslator, cluster: Any) -> bytes:
        raise AssertionError("translated again")

    monkeypatch.setattr(StableHloTranslator, "translate", refuse)
    model = load_model(linear, batch_sizes=(1, 2, 4), cache_directory=tmp_path)
    assert model.run("serving_default", {"x": ROWS})["y"].tolist() == [[22], [44]]
    model.close()


def test_oldest_executable_of_a_request_is_dropped_for_a_new_one(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuserve.pjrt.device_core._MAX_EXECUTABLES", 1)
    model = load_model(linear)
    (core,) = model._program._cores  # type: ignore[attr-defined]
    for rows in (2, 3):
        model.run("serving_default", {"x": np.ones((rows, 2), np.float32)})
    assert sorted(key[1] for key in core._executables) == [(1, 2), (3, 2)]
    model.close()


@pytest.mark.parametrize(
    ("function", "shape", "dtype", "reason"),
    [
        pytest.param(
            lambda x: tf.strings.length(x),
            [None],
            tf.string,
            "'x' .* has the type string",
            id="text",
        ),
        pytest.param(
            lambda x: tf.strings.to_number(tf.strings.as_string(x)),
            [None],
            tf.float32,
            r"XLA refuses .*AsString",
            id="op",
        ),
        pytest.param(
            lambda x: x + tf.random.uniform([]),
            [None],
            tf.float32,
            "RandomUniform .* draws other random numbers",
            id="random",
        ),
        pytest.param(
            lambda x: tf.debugging.check_numerics(x, "x"),
            [None],
            tf.float32,
            "CheckNumerics.* which XLA leaves out",
            id="check",
        ),
        pytest.param(
            lambda x: tf.TensorArray(tf.float32, 0, dynamic_size=True).write(0, x).stack(),
            [2],
            tf.float32,
            "TensorListSetItem .* whose array can grow, and which XLA truncates",
            id="growing",
        ),
        pytest.param(
            lambda x: tf.while_loop(lambda i: i < x, lambda i: i * 2.0, [1.0])[0],
            [],
            tf.float32,
            "a loop without a known number of iterations",
            id="endless",
        ),
        pytest.param(lambda x: x * 2.0, None, tf.float32, "unknown rank", id="rank"),
    ],
)
def test_tensorflow_serves_what_xla_cannot_and_one_line_says_why(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    function: Callable[[Any], Any],
    shape: list[int | None],
    dtype: Any,
    reason: str,
) -> None:
    caplog.set_level(logging.WARNING, "tpuserve")
    model = load_model(save(tmp_path, function, shape, dtype))
    (record,) = [record for record in caplog.records if record.name.startswith("tpuserve")]
    assert "TensorFlow runs the model, because XLA cannot" in record.message
    assert "\n" not in record.message
    assert model.choice.fallback in record.message
    assert re.search(reason, record.message)
    assert str(model.choice) == (
        "{serve} on CPU with the session runtime, because XLA cannot run the model "
        "(asked for; no TPU found)"
    )
    model.close()


def test_damaged_checkpoint_is_the_error_of_the_session(linear: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(linear, damaged)
    (damaged / "variables" / "variables.index").write_bytes(b"")
    with pytest.raises(DamagedSavedModel, match="Export the model again"):
        load_model(damaged)


def test_loop_with_a_known_number_of_turns_runs_through_xla(tmp_path: Path) -> None:
    def double_ten_times(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, y: i < 10, lambda i, y: (i + 1, tf.sin(y)), [0, x])[1]

    model = load_model(save(tmp_path, double_ten_times, [None], tf.float32))
    assert "xla runtime" in str(model.choice)
    model.close()


@pytest.mark.slow
def test_loop_and_branch_of_tensorflow_1_run_through_xla(tmp_path: Path) -> None:
    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None], name="x")
            doubled = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, 2.0 * y), (0, x))[1]
            y = v1.cond(tf.reduce_sum(x) > 0.0, lambda: doubled, lambda: -doubled)
            v1.saved_model.simple_save(session, str(tmp_path / "1"), {"x": x}, {"y": y})
    finally:
        v1.enable_control_flow_v2()
    model = load_model(tmp_path / "1")
    assert "xla runtime" in str(model.choice)
    answer = model.run("serving_default", {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(answer["y"], [8, 16])
    model.close()


def test_other_open_dimensions_are_compiled_for_the_first_size_that_fits(tmp_path: Path) -> None:
    def last_four(x: tf.Tensor) -> tf.Tensor:
        return tf.slice(x, [0, 3], [-1, 1])

    model = load_model(save(tmp_path, last_four, [None, None], tf.float32))
    assert "xla runtime" in str(model.choice)
    answer = model.run("serving_default", {"x": np.array([[1, 2, 3, 4, 5]], np.float32)})
    assert answer["y"].tolist() == [[4.0]]
    model.close()


def test_request_is_not_answered_after_its_deadline(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(linear)
    assert model.run("serving_default", {"x": ROWS}, timeout_ms=60_000)["y"].tolist() == [
        [22],
        [44],
    ]
    with pytest.raises(DeadlineExceeded):
        model.run("serving_default", {"x": ROWS}, timeout_ms=0)
    is_over = threading.Event()
    compile_module = DeviceCore.compile

    def slow_compile(self: DeviceCore, *arguments: Any) -> Any:
        is_over.wait(60)
        return compile_module(self, *arguments)

    monkeypatch.setattr(DeviceCore, "compile", slow_compile)
    with pytest.raises(DeadlineExceeded):
        model.run("serving_default", {"x": ROWS[[0, 1, 1]]}, timeout_ms=50)
    is_over.set()
    model.close()


@pytest.mark.parametrize("is_result", [False, True])
def test_run_that_needs_more_memory_than_the_device_has_is_refused(
    is_result: bool, tmp_path: Path
) -> None:
    def outer_product(x: tf.Tensor) -> tf.Tensor:
        # Sort the product: XLA has to store an array to sort it, and would fuse other ops.
        product = tf.sort(x[:, None] * x[None, :])
        return product if is_result else product[0, 0]

    model = load_model(save(tmp_path, outer_product, [None], tf.float32))
    with pytest.raises(DeviceMemoryExhausted, match="has no memory left"):
        model.run("serving_default", {"x": np.ones(TOO_LARGE, np.float32)})
    model.close()


def test_missing_jax_is_an_error_and_no_fallback(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ExtraNotInstalled, match=r"\.\[pjrt\]"):
        load_model(linear)


def test_version_of_jax_that_was_not_tested_is_refused(
    linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.11.0")
    with pytest.raises(ExtraNotInstalled, match=r"from 0.9 to below 0.11; found 0.11.0"):
        load_model(linear)
