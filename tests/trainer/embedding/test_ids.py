"""Ids become dense tensors: [rows, k], padded with -1, with the weights of the combiner."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.embedding import columns
from tpuserve.errors import InvalidSetting, InvalidType
from trainer.embedding import ids
from trainer.embedding.config import (
    EmbeddingConfigSpec,
    FeatureConfig,
    TableConfig,
    build_config,
)
from trainer.embedding.optimization_parameters import StochasticGradientDescentParameters
from trainer.infeed.tensor_nest import PADDED_IDS, PADDED_WEIGHTS


def pad(
    features: Any, *, combiner: str | None = "sum", length: int = 0, weights: str | None = None
) -> Any:
    spec = EmbeddingConfigSpec(
        optimization_parameters=StochasticGradientDescentParameters(0.1),
        feature_to_config_dict={"x": FeatureConfig("words", length, weights)},
        table_to_config_dict={"words": TableConfig(10, 2, combiner=combiner)},
    )
    return ids.pad_features(features, build_config(spec))


def test_the_number_of_columns_is_a_power_of_two() -> None:
    padded = pad({"x": columns.sparse([[1, 2, 3], [], [4]])})["x"]
    assert padded[PADDED_IDS].numpy().tolist() == [[1, 2, 3, -1], [-1] * 4, [4, -1, -1, -1]]
    assert padded[PADDED_WEIGHTS].numpy().tolist() == [[1, 1, 1, 0], [0] * 4, [1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("combiner", "expected"),
    [
        ("sum", [[3.0, 1.0], [0.0, 0.0], [4.0, 0.0]]),
        ("mean", [[0.75, 0.25], [0.0, 0.0], [1.0, 0.0]]),
        ("sqrtn", [[3 / 10**0.5, 1 / 10**0.5], [0.0, 0.0], [1.0, 0.0]]),
    ],
)
@pytest.mark.numeric
def test_weights_are_those_of_the_combiner(combiner: str, expected: Any) -> None:
    features = {
        "x": columns.sparse([[1, 2], [], [5]]),
        "by": columns.sparse([[3.0, 1.0], [], [4.0]]),
    }
    padded = pad(features, combiner=combiner, weights="by")
    np.testing.assert_allclose(padded["x"][PADDED_WEIGHTS], expected, rtol=1e-6)
    assert "by" not in padded


def test_sequences_are_cut_and_their_lengths_added() -> None:
    padded = pad({"x": columns.sparse([[1, 2, 3], [4], []])}, length=2)
    assert padded["x"][PADDED_IDS].numpy().tolist() == [[1, 2], [4, -1], [-1, -1]]
    assert padded["x_seq_length_"].numpy().tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "feature",
    [
        tf.constant([[0, 3], [5, -1]]),
        tf.constant([[0, 3], [5, -1]], tf.int64),
        tf.ragged.constant([[0, 3], [5]]),
        columns.sparse([[0, 3], [5]]),
        columns.sparse([[0, 3], [5, -1]]),
    ],
    ids=["int32", "int64", "ragged", "sparse", "sparse with -1"],
)
def test_all_forms_of_ids_give_the_same(feature: Any) -> None:
    padded = pad({"x": feature})["x"]
    assert padded[PADDED_IDS].numpy().tolist() == [[0, 3], [5, -1]]
    assert padded[PADDED_WEIGHTS].numpy().tolist() == [[1, 1], [1, 0]]


def test_dense_ids_need_no_combiner() -> None:
    padded = pad({"x": tf.constant([3, 0])}, combiner=None)["x"]
    assert padded[PADDED_IDS].numpy().tolist() == [[3], [0]]


@pytest.mark.parametrize(
    ("features", "options", "error", "message"),
    [
        (tf.zeros([2]), {}, InvalidType, "Return a dict from input_fn"),
        ({"y": tf.constant([1])}, {}, InvalidSetting, "has the feature 'x', and input_fn returned"),
        ({"x": tf.constant(["a"])}, {}, InvalidType, "string as values are not supported"),
        ({"x": tf.constant([[1, 2]])}, {"combiner": None}, InvalidType, "has 2 ids for each"),
        ({"x": columns.sparse([[1]])}, {"combiner": None}, InvalidType, "words' is None"),
        (
            {"x": tf.constant([1]), "by": tf.constant([1.0])},
            {"weights": "by"},
            InvalidType,
            "is dense, and has the weights 'by'",
        ),
        (
            {"x": columns.sparse([[1]]), "by": tf.constant([[1.0]])},
            {"weights": "by"},
            InvalidType,
            "Dense weights are not supported on TPU",
        ),
        (
            {"x": columns.sparse([[10]])},
            {},
            tf.errors.InvalidArgumentError,
            "'words' does not have: its rows are 0 to 9",
        ),
        (
            {"x": columns.sparse([[1], [2]]), "by": columns.sparse([[1.0, 2.0], []])},
            {"weights": "by"},
            tf.errors.InvalidArgumentError,
            "other positions than the ids 'x'",
        ),
    ],
)
def test_features_without_fitting_ids_are_refused(
    features: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pad(features, **options)


def test_ids_of_words_come_from_the_vocabulary_of_the_column() -> None:
    words = tf.feature_column.categorical_column_with_vocabulary_list("x", ["a", "b", "c"])
    column = columns.experimental.embedding_column(words, 2)
    config = build_config(EmbeddingConfigSpec([column], StochasticGradientDescentParameters(0.1)))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = ids.numbers_of_words({"x": tf.constant([["c"], ["a"]])}, config)
        session.run(tf.compat.v1.tables_initializer())
        assert session.run(features["x"].values).tolist() == [2, 0]
