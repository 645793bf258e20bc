"""Exports look ids up with embedding_lookup_sparse, to the numbers of the padded lookups."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer.embedding import columns, sums
from trainer.embedding import ids
from trainer.embedding import model as sparse_lookup
from trainer.embedding.config import (
    EmbeddingConfig,
    EmbeddingConfigSpec,
    FeatureConfig,
    TableConfig,
    build_config,
)
from trainer.embedding.optimization_parameters import StochasticGradientDescentParameters
from trainer.embedding.tables import StepTables

v1 = tf.compat.v1
# The last example has no ids, and -1 and -3 are none.
IDS = [[1, 2, 1], [], [-1, 4], [6, 3, -3, 5], []]
WEIGHTS = [[1.0, 0.5, -2.0], [], [3.0, 0.25], [0.5, 0.0, 1.0, 2.0], []]


def config(combiner: str | None, length: int, weights: str | None) -> EmbeddingConfig:
    table = TableConfig(7, 2, v1.constant_initializer(sums.INITIAL), combiner)
    return build_config(
        EmbeddingConfigSpec(
            optimization_parameters=StochasticGradientDescentParameters(0.1),
            feature_to_config_dict={"x": FeatureConfig("words", length, weights)},
            table_to_config_dict={"words": table},
        )
    )


def run_lookups(features: Callable[[], Any], look_up: Callable[[Any], Any]) -> Any:
    """Return the results of some lookups, from a graph of their own."""
    with tf.Graph().as_default(), v1.Session() as session:
        results = look_up(features())
        session.run(v1.global_variables_initializer())
        return session.run(results)


def sparse_features() -> Any:
    return {"x": columns.sparse(IDS), "by": columns.sparse(WEIGHTS)}


def dense_features() -> Any:
    return {"x": tf.constant([[1, -1], [5, 5], [-1, -1]], tf.int64)}


def vector_features() -> Any:
    return {"x": tf.constant([1, 5, -1])}


def ragged_features() -> Any:
    return {"x": tf.ragged.constant(IDS)}


@pytest.mark.parametrize(
    ("features", "combiner", "length", "weights"),
    [
        (sparse_features, "sum", 0, None),
        (sparse_features, "mean", 0, None),
        (sparse_features, "sqrtn", 0, None),
        (sparse_features, "sum", 0, "by"),
        (sparse_features, "mean", 0, "by"),
        (sparse_features, "sqrtn", 0, "by"),
        (sparse_features, "mean", 3, None),
        (sparse_features, "sum", 3, "by"),
        (sparse_features, "sqrtn", 3, "by"),
        (sparse_features, None, 2, None),
        (dense_features, "mean", 0, None),
        (dense_features, "sum", 3, None),
        (vector_features, None, 0, None),
        (ragged_features, "mean", 0, None),
    ],
)
@pytest.mark.numeric
def test_results_are_those_of_padded_lookups(
    features: Callable[[], Any], combiner: str | None, length: int, weights: str | None
) -> None:
    settings = config(combiner, length, weights)

    def look_up_padded(features: Any) -> Any:
        padded = ids.pad_features(features, settings)
        return {**padded, **StepTables(settings, 1).look_up(padded)}

    expected = run_lookups(features, look_up_padded)
    actual = run_lookups(features, lambda features: sparse_lookup.look_up(features, settings))
    assert actual.keys() == expected.keys()
    np.testing.assert_allclose(actual["x"], expected["x"], rtol=1e-6)
    if length:
        np.testing.assert_array_equal(actual["x_seq_length_"], expected["x_seq_length_"])


@pytest.mark.parametrize("features", [sparse_features, dense_features])
def test_an_id_that_the_table_does_not_have_is_named(features: Callable[[], Any]) -> None:
    table = TableConfig(5, 2, combiner="sum")
    spec = EmbeddingConfigSpec(
        optimization_parameters=StochasticGradientDescentParameters(0.1),
        feature_to_config_dict={"x": FeatureConfig("words")},
        table_to_config_dict={"words": table},
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="its rows are 0 to 4. Raise vocab"):
        run_lookups(features, lambda features: sparse_lookup.look_up(features, build_config(spec)))


@pytest.mark.slow
def test_an_export_has_the_sparse_lookup_and_no_padding(tmp_path: Path) -> None:
    model = sums.estimator(tmp_path / "model", sums.spec(), use_tpu=False)
    model.train(sums.batches(sums.IDS), steps=1)
    receiver = trainer.export.build_parsing_serving_input_receiver_fn(
        {"x": tf.io.VarLenFeature(tf.int64)}
    )
    directory = model.export_saved_model(str(tmp_path / "export"), receiver).decode()
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v1.saved_model.load(session, ["serve"], directory)
        types = {operation.type for operation in graph.get_operations()}
    assert "SparseSegmentMean" in types
    assert not types & {"RaggedTensorToTensor", "IdentityN"}, sorted(types)
