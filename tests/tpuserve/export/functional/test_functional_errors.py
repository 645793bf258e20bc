import logging
import resource
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tf_keras

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import BatchConfig, WarmUp, export, on_tpu

X = {"x": tf.TensorSpec([None], tf.float32)}
TEXT = {"x": tf.TensorSpec([None], tf.string)}
BATCHES = BatchConfig(1, 4, 0, [4])


def same(x: Any) -> Any:
    return x


def double(x: Any) -> Any:
    return x * 2.0


def double_where_allowed(x: Any, use_tpu: bool) -> Any:
    return on_tpu(double, x) if use_tpu else double(x)


def _there_and_back(x: Any) -> Any:
    return tf.strings.to_number(tf.as_string(x))


@pytest.mark.parametrize(
    ("model", "signatures", "error", "message"),
    [
        (None, X, ExportError, "the model is None, which cannot be called"),
        (double, {"a": (3, X)}, ExportError, "signature 'a' is 3, which cannot be called"),
        (double, None, ExportError, "no signatures are given"),
        (double, {}, InvalidSetting, "signatures is empty"),
        (double, [X], InvalidType, r"signatures is \[.*Give \{"),
        (double, {"a": 3}, InvalidType, "signature 'a' is 3. Give"),
        (double, {"a": {"x": 3}}, InvalidType, "input 'x' of signature 'a' is 3"),
        (double, {1: X}, InvalidType, "a signature is named 1"),
        (double, {"__saved_model_init_op": X}, InvalidSetting, "TensorFlow keeps for itself"),
        (double, {"x/y": X["x"]}, InvalidSetting, "has an input 'x/y'"),
        (double, {"y": X["x"]}, InvalidSetting, r"inputs \{y\}, and 'double' takes \{x\}"),
        (lambda x: 3, X, ExportError, "returned int as 'output'"),
        (lambda x: [x, x], X, ExportError, "returned list as 'output'"),
        (lambda x: {}, X, ExportError, "returned no output"),
        (lambda x: {1: x}, X, ExportError, "named an output 1"),
        (same, X, ExportError, "returns its inputs as they are"),
        (tf.strings.length, {"input": TEXT["x"]}, ExportError, "strings on the TPU.*use_tpu"),
        (tf.as_string, {"input": X["x"]}, ExportError, "strings on the TPU, in AsString"),
        (
            lambda x: {"y": x * 2.0, "text": tf.constant(["a"])},
            *(X, ExportError, "strings on the TPU, in Identity"),
        ),
        (
            lambda x, text: {"y": x * 2.0, "text": tf.identity(text)},
            *({**X, "text": TEXT["x"]}, ExportError, "strings on the TPU, in Identity"),
        ),
        (
            lambda x: tf.cond(tf.reduce_all(x > 0), lambda: tf.as_string(x), lambda: "no"),
            *(X, ExportError, "strings on the TPU"),
        ),
        (
            lambda x: tf.cond(x[0] > 0, lambda: _there_and_back(x), lambda: x),
            *(X, ExportError, "strings on the TPU, in AsString"),
        ),
        (
            lambda x, use_tpu: {"y": x[:2] if use_tpu else x[:3]},
            *({"x": tf.TensorSpec([4])}, ExportError, r"\[3\]\) in .* \[2\]\) in .* use_tpu is"),
        ),
        (lambda x: on_tpu(double, x), X, ExportError, "for the metagraph {serve} as well"),
    ],
)
def test_a_model_or_signature_that_cannot_be_exported_is_refused_in_one_line(
    tmp_path: Path, model: Any, signatures: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        export(model, signatures, tmp_path / "export")
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.glob("export/*"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"to_cpu": False, "to_tpu": False}, ExportError, "nothing to write"),
        ({"export_dir_base": ""}, InvalidSetting, "export_dir_base is missing"),
        ({"export_dir_base": 3}, InvalidType, "export_dir_base is 3"),
        ({"assets_extra": {"a": "/no/such"}}, InvalidSetting, "'/no/such', and there is no such"),
        ({"warm_up": 3}, InvalidType, "warm_up is 3"),
        (
            {"warm_up": True, "assets_extra": {"tf_serving_warmup_requests": __file__}},
            *(InvalidSetting, "and warm_up writes that file"),
        ),
        ({"assets_extra": ["f"]}, InvalidType, r"assets_extra is \['f'\]"),
        (
            {"export_dir_base": __file__},
            ExportError,
            "_errors.py cannot be written: ",
        ),
        ({"batch_config": 8}, InvalidType, "batch_config is 8. Give a BatchConfig"),
        (
            {"model": double_where_allowed, "batch_config": BATCHES},
            InvalidSetting,
            "takes use_tpu and so",
        ),
        (
            {"signatures": {"x": tf.TensorSpec([3])}, "batch_config": BATCHES},
            *(InvalidSetting, "Let its first dimension be None"),
        ),
        (
            {
                "model": tf.reduce_sum,
                "signatures": {"input_tensor": X["x"]},
                "batch_config": BATCHES,
            },
            *(ExportError, "scalar"),
        ),
    ],
)
def test_an_invalid_setting_is_refused(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    options = {"model": double, "signatures": X, "export_dir_base": tmp_path, **arguments}
    with pytest.raises(error, match=message):
        export(**options)


def test_a_table_without_an_owner_is_refused(tmp_path: Path) -> None:
    class TableHolder:
        initializer = tf.lookup.KeyValueTensorInitializer(["a"], [1])
        table = tf.lookup.StaticHashTable(initializer, 0)

    def find(x: Any, use_tpu: bool) -> Any:
        return TableHolder().table.lookup(x)

    with pytest.raises(ExportError, match="attribute of a tf.Module"):
        export(find, TEXT, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_variables_that_are_gone_are_an_error(tmp_path: Path) -> None:
    def make() -> Any:
        variable = tf.Variable(2.0)
        return tf.function(lambda x: x * variable).get_concrete_function(**X)

    with pytest.raises(ExportError, match="uses variables that are gone"):
        export(make(), None, tmp_path)


def test_keras_inputs_of_other_names_are_refused(tmp_path: Path) -> None:
    a, b = tf_keras.Input([1], name="a"), tf_keras.Input([1], name="b")
    model = tf_keras.Model([a, b], tf_keras.layers.Add()([a, b]))
    with pytest.raises(InvalidSetting, match=r"inputs \['a', 'c'\], and .* takes \['a', 'b'\]"):
        export(model, {"a": tf.TensorSpec([None, 1]), "c": tf.TensorSpec([None, 1])}, tmp_path)


def test_an_export_inside_of_a_graph_is_refused(tmp_path: Path) -> None:
    with tf.Graph().as_default(), pytest.raises(ExportError, match="does not execute eagerly"):
        export(double, X, tmp_path)


def test_a_function_that_puts_nothing_on_the_tpu_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="tpuserve"):
        export(lambda x, use_tpu: x + 1.0, X, tmp_path)
    assert "serving_default puts nothing on the TPU" in caplog.text


def test_the_users_own_error_comes_through(tmp_path: Path) -> None:
    def fail(x: Any) -> Any:
        raise KeyError("missing weight")

    with pytest.raises(KeyError, match="missing weight"):
        export(fail, X, tmp_path)


def test_a_failure_while_writing_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="inputs of no signature"):
        export(double, X, tmp_path, warm_up=WarmUp(inputs={"y": [1.0]}))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    # A limit on the size of files refuses to write like a full disk.
    weights = tf.Variable(tf.zeros([1000]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ExportError, match=f"{tmp_path} cannot be written: .*File too large"):
            export(lambda x: x * weights, {"x": tf.TensorSpec([1000])}, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
