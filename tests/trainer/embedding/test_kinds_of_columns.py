"""Kinds of columns that few programs have: the numbers are the same on each device."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer.backends.tpu import slope
from tests.trainer.embedding import columns, sums
from tpuserve.errors import InvalidType

pytestmark = pytest.mark.slow

v1 = tf.compat.v1
ZEROS = v1.zeros_initializer()
IDENTITY = tf.feature_column.categorical_column_with_identity("x", 5)
WORDS = tf.feature_column.categorical_column_with_vocabulary_list("x", ["a", "b", "c", "d", "e"])
# Row 1 of the table is in two of four rows of a batch, row 2 in one, as in IDS.
IDS = [[1, 1], [1, 2]]


def train(
    model_dir: Path, used: list[Any], values: Any, *, use_tpu: bool, layer: Any = None
) -> dict[str, Any]:
    """Train one step of y = sum of the activations, from tables of zeros; return the variables."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        activations = (layer or v1.keras.layers.DenseFeatures(used))(features)
        y = tf.reduce_sum(activations, 1, keepdims=True)
        loss = tf.reduce_mean((y - labels) ** 2 / 2.0)
        optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn(params: Any) -> Any:
        indices = [[0, 0], [0, 1], [1, 0], [1, 1]]
        features = {
            name: tf.SparseTensor(indices, np.ravel(value), [2, 2])
            for name, value in values.items()
        }
        return tf.data.Dataset.from_tensors((features, tf.ones([2, 1]))).repeat()

    spec = trainer.EmbeddingConfigSpec(used, trainer.StochasticGradientDescentParameters(0.5))
    with slope.tpu(2):
        model = sums.estimator(model_dir, spec, use_tpu=use_tpu, model=model_fn, batch_size=2)
        model.train(input_fn, steps=1)
    return sums.variables(model_dir)


@pytest.mark.parametrize("use_tpu", [False, True])
@pytest.mark.numeric
def test_columns_on_the_tensor_core_are_trained_by_the_optimizer_of_model_fn(
    use_tpu: bool, tmp_path: Path
) -> None:
    other = tf.feature_column.categorical_column_with_identity("z", 5)
    used = [
        columns.experimental.embedding_column(
            IDENTITY,
            2,
            initializer=ZEROS,
            embedding_lookup_device="tpu_tensor_core",
            tensor_core_shape=[None, 2],
        ),
        columns.experimental.embedding_column(other, 2, initializer=ZEROS),
    ]
    after = train(tmp_path, used, {"x": IDS, "z": IDS}, use_tpu=use_tpu)
    # The gradient of each activation is -1/2. The mean of row 0 has row 1 twice, that of row 1 has
    # row 1 and row 2 by a half each. Both optimizers have the rate 0.5.
    expected = [[0.0] * 2, [0.375] * 2, [0.125] * 2, [0.0] * 2, [0.0] * 2]
    for name in "xz":
        table = after[f"dense_features/{name}_embedding/embedding_weights"]
        np.testing.assert_allclose(table, expected, rtol=1e-6)


@pytest.mark.parametrize("use_tpu", [False, True])
@pytest.mark.numeric
def test_all_columns_may_be_on_the_tensor_core(use_tpu: bool, tmp_path: Path) -> None:
    other = tf.feature_column.categorical_column_with_identity("z", 5)
    used = columns.experimental.shared_embedding_columns(
        [IDENTITY, other],
        2,
        initializer=ZEROS,
        shared_embedding_collection_name="shared",
        embedding_lookup_device="tpu_tensor_core",
        tensor_core_shape=[None, 2],
    )
    after = train(tmp_path, used, {"x": IDS, "z": [[3, 3], [3, 3]]}, use_tpu=use_tpu)
    # y is the sum of both features' activations; the gradients are as above.
    expected = [[0.0] * 2, [0.375] * 2, [0.125] * 2, [0.5] * 2, [0.0] * 2]
    np.testing.assert_allclose(after["shared"], expected, rtol=1e-6)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_input_layer_in_a_scope_names_the_variable(use_tpu: bool, tmp_path: Path) -> None:
    used = [columns.experimental.embedding_column(IDENTITY, 2, initializer=ZEROS)]

    def layer(features: Any) -> Any:
        with v1.variable_scope("tower"):
            return v1.feature_column.input_layer(features, used)

    after = train(tmp_path, used, {"x": IDS}, use_tpu=use_tpu, layer=layer)
    assert set(after) == {"tower/input_layer/x_embedding/embedding_weights", "global_step"}


@pytest.mark.numeric
def test_a_vocabulary_makes_ids_of_words_off_the_tpu(tmp_path: Path) -> None:
    used = [columns.experimental.embedding_column(WORDS, 2, initializer=ZEROS)]
    after = train(tmp_path, used, {"x": [["b", "b"], ["b", "c"]]}, use_tpu=False)
    table = after["dense_features/x_embedding/embedding_weights"]
    np.testing.assert_allclose(table[:, 0], [0.0, 0.375, 0.125, 0.0, 0.0], rtol=1e-6)


def test_words_are_refused_on_a_tpu(tmp_path: Path) -> None:
    used = [columns.experimental.embedding_column(WORDS, 2, initializer=ZEROS)]
    with pytest.raises(InvalidType, match="string as values are not supported on a TPU"):
        train(tmp_path, used, {"x": [["b", "b"], ["b", "c"]]}, use_tpu=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda sequence: columns.experimental.embedding_column(sequence, 2), "greater than 0"),
        (
            lambda sequence: columns.experimental.embedding_column(
                IDENTITY, 2, max_sequence_length=2
            ),
            "Non zero max_seq_length=2 specified for non",
        ),
        (
            lambda sequence: columns.experimental.shared_embedding_columns(
                [sequence, IDENTITY], 2, max_sequence_lengths=[2]
            ),
            "must be of the same length",
        ),
    ],
    ids=["no length", "no sequence", "too few lengths"],
)
def test_sequence_lengths_that_do_not_fit_the_columns_are_refused(
    make: Callable[[Any], Any], message: str
) -> None:
    sequence = tf.feature_column.sequence_categorical_column_with_identity("s", 5)
    with pytest.raises(ValueError, match=message):
        make(sequence)
