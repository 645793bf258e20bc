"""What the settings of embedding tables refuse, and what they make of feature columns."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tests.trainer.embedding import columns, sums
from tpuserve.errors import InvalidSetting
from trainer.embedding.config import (
    EmbeddingConfigSpec,
    FeatureConfig,
    TableConfig,
    configs_from_columns,
)
from trainer.embedding.optimization_parameters import AdagradParameters, AdamParameters

PARAMETERS = AdagradParameters(0.1)
TABLES = {"words": TableConfig(10, 2)}
FEATURES = {"x": FeatureConfig("words")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 2), "vocabulary_size of a TableConfig is 0"),
        ((10, 0), "dimension of a TableConfig is 0"),
        ((10, 2, 1.0), "must be callable if specified"),
        ((10, 2, None, "max"), "'mean', 'sum', 'sqrtn' or None"),
        ((10, 2, None, "sum", False, 0.1, lambda step: 0.1), "At most one of learning_rate and"),
        ((10, 2, None, "sum", False, None, None, 0.1), "optimization_parameters of a TableConfig"),
    ],
)
def test_impossible_tables_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        TableConfig(*arguments)


def test_negative_sequence_lengths_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="max_sequence_length of a FeatureConfig is -1"):
        FeatureConfig("words", -1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "Exactly one of `feature_columns` and the pair"),
        ({"feature_to_config_dict": FEATURES}, ValueError, "Exactly one of"),
        (
            {"feature_to_config_dict": FEATURES, "table_to_config_dict": TABLES},
            ValueError,
            "table 'words' has no optimization_parameters",
        ),
        (
            {"feature_to_config_dict": {"x": 1}, "table_to_config_dict": TABLES},
            TypeError,
            "must be of type `FeatureConfig`",
        ),
        (
            {"feature_to_config_dict": FEATURES, "table_to_config_dict": {"words": 1}},
            TypeError,
            "must be of type `TableConfig`",
        ),
        (
            {
                "feature_to_config_dict": {"x": FeatureConfig("letters")},
                "table_to_config_dict": TABLES,
            },
            ValueError,
            "Feature x refers to table letters which is not in",
        ),
        (
            {
                "feature_to_config_dict": FEATURES,
                "table_to_config_dict": {**TABLES, "other": TableConfig(1, 1)},
                "optimization_parameters": PARAMETERS,
            },
            ValueError,
            "'other', which is not used",
        ),
        (
            {"feature_columns": ["x"], "optimization_parameters": PARAMETERS},
            TypeError,
            "must be supported types",
        ),
        ({"feature_columns": ["x"]}, ValueError, "must be an instance of AdagradParameters"),
        (
            {
                "feature_to_config_dict": FEATURES,
                "table_to_config_dict": TABLES,
                "optimization_parameters": PARAMETERS,
                "partition_strategy": "invalid",
            },
            ValueError,
            'Invalid partition_strategy invalid. Must be one of "mod" or "div".',
        ),
        (
            {
                "feature_to_config_dict": FEATURES,
                "table_to_config_dict": TABLES,
                "optimization_parameters": PARAMETERS,
                "clipping_limit": -1.0,
            },
            ValueError,
            "clipping_limit is -1.0",
        ),
    ],
)
def test_impossible_specs_are_refused(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        EmbeddingConfigSpec(**arguments)


def test_columns_and_dicts_together_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="Exactly one of"):
        EmbeddingConfigSpec(
            columns.make_columns().plain,
            PARAMETERS,
            feature_to_config_dict=FEATURES,
            table_to_config_dict=TABLES,
        )


@pytest.mark.parametrize("option", ["use_tpu", "eval_on_tpu"])
def test_mod_is_refused_off_the_tpu(option: str, tmp_path: Path) -> None:
    spec = sums.spec(partition_strategy="mod")
    with pytest.raises(InvalidSetting, match="Mod sharding of embedding tables not supported on"):
        programs.estimator(tmp_path, embedding_config_spec=spec, **{option: False})


def test_input_modes_without_batches_of_their_own_are_refused(tmp_path: Path) -> None:
    mode = trainer.InputPipelineConfig.BROADCAST
    with pytest.raises(InvalidSetting, match="Only PER_HOST_V1 and PER_HOST_V2 is supported"):
        sums.estimator(tmp_path, sums.spec(), per_host_input_for_training=mode)


def test_columns_describe_their_tables_and_features() -> None:
    feature_columns = columns.make_columns()
    tables, features = configs_from_columns([*feature_columns.plain, *feature_columns.sequences])
    assert features == {
        "single": FeatureConfig("tbl_single"),
        "weighted": FeatureConfig("tbl_weighted_weighted_by_weights", weight_key="weights"),
        "first": FeatureConfig("tbl_shared"),
        "second": FeatureConfig("tbl_shared"),
        "sequence": FeatureConfig("tbl_sequence", max_sequence_length=2),
    }
    shapes = {name: (table.vocabulary_size, table.dimension) for name, table in tables.items()}
    assert shapes == {
        "tbl_single": (10, 4),
        "tbl_weighted_weighted_by_weights": (6, 2),
        "tbl_shared": (5, 3),
        "tbl_sequence": (7, 2),
    }
    assert tables["tbl_shared"].combiner == "sum"


def test_a_feature_of_two_columns_is_refused() -> None:
    words = tf.feature_column.categorical_column_with_identity("x", 10)
    twice = [columns.experimental.embedding_column(words, size) for size in (2, 4)]
    with pytest.raises(InvalidSetting, match="x is used with multiple embeddings and this is not"):
        configs_from_columns(twice)


def test_columns_that_are_not_looked_up_on_a_tpu_are_refused_there() -> None:
    words = tf.feature_column.categorical_column_with_identity("x", 10)
    plain = tf.feature_column.embedding_column(words, 2)
    spec = EmbeddingConfigSpec([plain], AdamParameters(0.1))
    with pytest.raises(TypeError, match="Unsupported feature column"):
        configs_from_columns(spec.feature_columns)
