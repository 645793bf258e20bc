from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.tpuserve.export import answers
from tpuserve.export import BatchConfig, export, on_tpu
from tpuserve.saved_model import metagraph

pytestmark = pytest.mark.numeric

keras = pytest.importorskip("keras")
both_keras = pytest.mark.parametrize("package", [tf_keras, keras], ids=["tf_keras", "keras"])


@both_keras
def test_a_functional_model_keeps_its_names_and_is_exported_for_inference(
    tmp_path: Path, package: Any
) -> None:
    layers = package.layers
    a, b = package.Input([2], name="a"), package.Input([3], name="b")
    joined = layers.BatchNormalization()(layers.Concatenate()([a, b]))
    joined = layers.Dropout(0.5)(joined)
    outputs = [layers.Dense(1, name="left")(joined), layers.Dense(2, name="right")(joined)]
    model = package.Model([b, a], outputs)
    batch_norm = next(layer for layer in model.layers if "batch_norm" in layer.name)
    batch_norm.moving_mean.assign([1, 2, 3, 4, 5])
    batch_norm.moving_variance.assign([1, 4, 9, 16, 25])
    values: dict[str, Any] = {"a": np.ones([2, 2], np.float32), "b": np.full([2, 3], 2, np.float32)}
    directory = export(model, export_dir_base=tmp_path)
    answer = answers.both(directory, **values)
    left, right = model([values["b"], values["a"]], training=False)
    np.testing.assert_allclose(answer["left"], left, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answer["right"], right, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@both_keras
def test_a_trained_model_leaves_its_optimizer_behind(tmp_path: Path, package: Any) -> None:
    model = package.Sequential([package.layers.Input([2], name="x"), package.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)
    directory = export(model, tmp_path)
    metagraphs = metagraph.read_saved_model(directory).metagraphs
    # Each metagraph has a kernel of two float32 numbers and a bias of one: 12 bytes.
    assert [sum(variable.bytes or 0 for variable in one.variables) for one in metagraphs] == [
        12,
        12,
    ]
    assert Path(directory).parent == tmp_path
    x = np.array([[1, 2]], np.float32)
    (answer,) = answers.both(directory, x=x).values()
    np.testing.assert_allclose(answer, model(x), rtol=1e-5)


@pytest.mark.slow
@both_keras
def test_an_lstm_runs_on_the_tpu_in_batches(tmp_path: Path, package: Any) -> None:
    layers = package.layers
    model = package.Sequential(
        [layers.Input([5, 3]), layers.LSTM(4), layers.Dense(2, activation="softmax")]
    )
    specs = {"sequence": tf.TensorSpec([None, 5, 3], tf.float32)}
    config = BatchConfig(1, 4, 0, [4])
    directory = export(model, specs, tmp_path, batch_config=config)
    sequence = np.random.default_rng(0).random([3, 5, 3], np.float32)
    (answer,) = answers.both(directory, sequence=sequence).values()
    np.testing.assert_allclose(answer, model(sequence), rtol=1e-5, atol=1e-6)


@both_keras
def test_a_subclassed_model_is_called_with_the_inputs_that_it_is_given(
    tmp_path: Path, package: Any
) -> None:
    class Model(package.Model):
        def call(self, inputs: Any) -> Any:
            return {"sum": inputs["a"] + inputs["b"]}

    specs = {name: tf.TensorSpec([None], tf.float32) for name in ("a", "b")}
    one = np.ones([1], np.float32)
    assert answers.both(export(Model(), specs, tmp_path), a=one, b=one) == {"sum": [2]}


@pytest.mark.slow
@both_keras
def test_a_text_model_looks_words_up_on_the_host(tmp_path: Path, package: Any) -> None:
    layers = package.layers
    to_ids = layers.TextVectorization(
        vocabulary=["good", "bad"], output_sequence_length=3, standardize=None
    )
    pooled = layers.GlobalAveragePooling1D()
    network = package.Sequential([layers.Embedding(5, 4), pooled, layers.Dense(1)])

    def classify(text: Any, use_tpu: bool) -> Any:
        ids = to_ids(text)
        return {"score": on_tpu(network, ids) if use_tpu else network(ids)}

    directory = export(classify, {"text": tf.TensorSpec([None], tf.string)}, tmp_path)
    answer = answers.both(directory, text=answers.strings("good good", "odd"))
    # The ID of padding is 0, that of a word outside of the vocabulary is 1.
    expected = network(np.array([[2, 2, 0], [1, 0, 0]]))
    np.testing.assert_allclose(answer["score"], expected, rtol=1e-5, atol=1e-6)
