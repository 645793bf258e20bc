from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import exports, programs
from tpuserve import tags
from tpuserve.errors import CheckpointNotFound, ExportError, InvalidType
from tpuserve.export import warm_up
from tpuserve.saved_model import metagraph


def plain(tmp_path: Path) -> trainer.Estimator:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        return exports.three_outputs(features, labels, mode, params).as_estimator_spec()

    return trainer.Estimator(model_fn, str(tmp_path / "model"), params={"rate": 0.5})


@pytest.mark.slow
def test_a_plain_estimator_gets_both_metagraphs(tmp_path: Path) -> None:
    estimator = plain(tmp_path).train(programs.ones(), steps=1)
    note = tmp_path / "note.txt"
    note.write_text("hello")
    path = trainer.export_estimator_savedmodel(
        estimator, str(tmp_path / "export"), exports.parsing, {"note.txt": str(note)}
    )
    directory = Path(path.decode())
    exports.check_three_outputs(directory)
    assert (directory / "assets.extra/note.txt").read_text() == "hello"


def test_it_is_written_as_text_where_that_is_asked_for(tmp_path: Path) -> None:
    estimator = plain(tmp_path).train(programs.ones(), steps=1)
    path = trainer.export_estimator_savedmodel(
        estimator, str(tmp_path / "export"), exports.raw, as_text=True
    )
    directory = Path(path.decode())
    assert (directory / "saved_model.pbtxt").exists()
    for tag_set in (tags.SERVE, tags.SERVE_TPU):
        exports.load_by_tensorflow(directory, sorted(tag_set))


def test_a_chosen_checkpoint_and_a_warm_up_are_taken(tmp_path: Path) -> None:
    estimator = plain(tmp_path).train(programs.ones(), steps=1)
    path = trainer.export_estimator_savedmodel(
        estimator,
        str(tmp_path / "export"),
        exports.raw,
        checkpoint_path=f"{estimator.model_dir}/model.ckpt-0",
        warm_up=True,
    ).decode()
    metagraphs = metagraph.read_saved_model(path).metagraphs
    assert [graph.tags for graph in metagraphs] == [tags.SERVE, tags.SERVE_TPU]
    assert tf.train.load_variable(f"{path}/variables/variables", "w") == 0.0
    assert (Path(path) / warm_up.FILE).exists()


def test_a_saver_within_the_tpu_computation_is_refused(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        spec = programs.slope_model_fn(features, labels, mode, params).as_estimator_spec()
        saver = tf.compat.v1.train.Saver(save_relative_paths=True)
        return spec._replace(scaffold=tf.compat.v1.train.Scaffold(saver=saver))

    estimator = trainer.Estimator(model_fn, str(tmp_path / "model"), params={"rate": 0.5})
    estimator.train(programs.ones(), steps=1)
    with pytest.raises(ExportError, match="scaffold has a saver of its own.* with a scaffold_fn"):
        trainer.export_estimator_savedmodel(estimator, str(tmp_path / "export"), exports.raw)
    assert list((tmp_path / "export").iterdir()) == []


def test_what_is_no_trained_estimator_is_refused(tmp_path: Path) -> None:
    none: Any = {}
    with pytest.raises(InvalidType, match=r"Give a trainer\.Estimator"):
        trainer.export_estimator_savedmodel(none, str(tmp_path), exports.raw)
    with pytest.raises(CheckpointNotFound, match="Call train"):
        trainer.export_estimator_savedmodel(plain(tmp_path), str(tmp_path), exports.raw)
