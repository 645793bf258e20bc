"""An export contains trained lookup tables, and the values of a warm start without training."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import exports, programs
from tpuserve import tags
from tpuserve.errors import CheckpointNotFound

v1 = tf.compat.v1


def _counting_model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Build a model that counts its training steps in a table and predicts x times the count."""
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0, name="counts")
    count = table.lookup(tf.constant("steps"))
    if mode == trainer.ModeKeys.PREDICT:
        return trainer.EstimatorSpec(mode, predictions={"y": features["x"] * count})
    step = v1.train.get_global_step()
    counted = table.insert(tf.constant("steps"), count + 1.0)
    train_op = tf.group(counted, v1.assign_add(step, 1))
    return trainer.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=train_op)


def _predict(directory: Path) -> Any:
    signature = tf.saved_model.load(str(directory), tags=sorted(tags.SERVE)).signatures
    return signature["serving_default"](x=tf.constant([[3.0]]))["y"].numpy()


def test_a_table_is_trained_saved_and_exported_with_its_values(tmp_path: Path) -> None:
    estimator = trainer.Estimator(_counting_model_fn, str(tmp_path / "model"))
    estimator.train(programs.ones(), max_steps=4)
    assert [prediction["y"][0] for prediction in estimator.predict(programs.ones(1))] == [4.0, 4.0]
    directory = estimator.export_saved_model(str(tmp_path / "export"), exports.raw)
    assert _predict(Path(directory.decode())) == [[12.0]]


@pytest.mark.parametrize("is_directory", [True, False])
def test_a_warm_start_can_be_exported_without_training(tmp_path: Path, is_directory: bool) -> None:
    programs.estimator(tmp_path / "first").train(programs.ones(), max_steps=1)
    source = tmp_path / "first" / ("" if is_directory else "model.ckpt-1")
    warm = programs.estimator(tmp_path / "second", warm_start_from=str(source))
    directory = warm.export_saved_model(str(tmp_path / "export"), exports.raw)
    assert _predict(Path(directory.decode())) == [[1.5]]


def test_an_empty_checkpoint_path_exports_the_values_of_a_warm_start(tmp_path: Path) -> None:
    programs.write_trained(tmp_path / "first", steps=1)
    warm = programs.estimator(tmp_path / "second", warm_start_from=str(tmp_path / "first"))
    directory = warm.export_saved_model(str(tmp_path / "export"), exports.raw, checkpoint_path="")
    assert _predict(Path(directory.decode())) == [[1.5]]


def test_a_warm_start_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    warm = programs.estimator(tmp_path / "second", warm_start_from=str(tmp_path / "empty"))
    with pytest.raises(CheckpointNotFound, match="no checkpoint to warm start from"):
        warm.export_saved_model(str(tmp_path / "export"), exports.raw)
