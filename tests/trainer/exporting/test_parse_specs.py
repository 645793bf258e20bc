from typing import Any

import pytest
import tensorflow as tf

import trainer
from tpuserve.errors import InvalidSetting, InvalidType

X = tf.feature_column.numeric_column("x")


def test_a_classifier_parses_features_a_class_and_a_weight() -> None:
    spec = trainer.classifier_parse_example_spec([X], "y", weight_column="w")
    assert spec == {
        "x": tf.io.FixedLenFeature((1,), tf.float32),
        "y": tf.io.FixedLenFeature((1,), tf.int64),
        "w": tf.io.FixedLenFeature((1,), tf.float32),
    }


def test_a_regressor_parses_labels_of_several_numbers() -> None:
    spec = trainer.regressor_parse_example_spec([X], "y", label_dimension=3, label_default=0.5)
    assert spec["y"] == tf.io.FixedLenFeature((3,), tf.float32, 0.5)


@pytest.mark.parametrize(
    "arguments",
    [{"label_key": "x"}, {"label_key": "y", "weight_column": "x"}],
    ids=["label", "weight"],
)
def test_a_label_or_weight_that_is_a_feature_is_refused(arguments: Any) -> None:
    with pytest.raises(InvalidSetting, match="should not be used as feature"):
        trainer.classifier_parse_example_spec([X], **arguments)


def test_defaults_and_weights_of_other_types_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="label_default is 'a', and label_dtype int64"):
        trainer.classifier_parse_example_spec([X], "y", label_default="a")
    with pytest.raises(InvalidType, match="weight_column is 3"):
        trainer.regressor_parse_example_spec([X], "y", weight_column=3)
