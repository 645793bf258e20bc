from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

import trainer
from tests.trainer import exports, programs
from tests.trainer.exports import wrap_model_fn
from tpuserve.errors import ExportError, InvalidType
from tpuserve.export import warm_up
from tpuserve.runtime import loader


def records(directory: Path) -> list[Any]:
    logs = tf.data.TFRecordDataset(str(directory / warm_up.FILE)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in logs]


def read_request(record: Any) -> tuple[str, dict[str, Any]]:
    """Return the signature name of a warm-up record, and its inputs: alias → array."""
    kind = record.WhichOneof("log_type")
    request = getattr(record, kind).request
    name = request.model_spec.signature_name
    if kind == "predict_log":
        return name, {alias: tf.make_ndarray(record) for alias, record in request.inputs.items()}
    examples = [record.SerializeToString() for record in request.input.example_list.examples]
    return name, {"inputs": exports.strings(examples)}


@pytest.mark.slow
def test_every_record_runs_on_both_metagraphs(tmp_path: Path) -> None:
    batches = trainer.BatchConfig(1, 4, 1000, [2, 4])
    directory = exports.export(
        tmp_path,
        exports.parsing,
        warm_up=True,
        model_fn=wrap_model_fn(batches, exports.three_outputs),
        export_saved_model_api_version=2,
    )
    requests = [read_request(record) for record in records(directory)]
    assert [(name, len(*inputs.values())) for name, inputs in requests] == [
        (name, rows) for name in ("scores", "serving_default", "value") for rows in (2, 4)
    ]
    for tag_set, hardware in exports.HARDWARE.items():
        model = loader.load(directory, tag_set, hardware)
        for name, inputs in requests:
            (output,) = model.run(name, inputs).values()
            assert len(output) == len(*inputs.values())
        model.close()


def test_a_whole_model_on_the_tpu_warms_up_for_the_sizes_that_are_given(tmp_path: Path) -> None:
    settings = trainer.WarmUp(batch_sizes=[1, 3], inputs={"x": [[7.0]]})
    logs = records(exports.export(tmp_path, warm_up=settings))
    requests = [read_request(record)[1]["x"].tolist() for record in logs]
    assert requests == [[[7.0]], [[7.0]] * 3]


@pytest.mark.parametrize("no", [None, False])
def test_no_file_is_written_where_none_is_asked_for(tmp_path: Path, no: Any) -> None:
    assert not (exports.export(tmp_path, warm_up=no) / warm_up.FILE).exists()


def test_a_wrong_warm_up_leaves_no_version_behind(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="'y' are inputs of no signature; found 'x'"):
        exports.export(tmp_path, warm_up=trainer.WarmUp(inputs={"y": [1.0]}))
    assert list((tmp_path / "export").iterdir()) == []
    with pytest.raises(InvalidType, match=r"warm_up is 8\. Give a tpuserve\.export\.WarmUp"):
        exports.export(tmp_path, warm_up=8)


def test_exporters_pass_it_on(tmp_path: Path) -> None:
    estimator = programs.estimator(tmp_path / "model").train(programs.ones(), max_steps=1)
    checkpoint = f"{estimator.model_dir}/model.ckpt-1"
    for kind in (trainer.FinalExporter, trainer.LatestExporter, trainer.BestExporter):
        exporter = kind("e", serving_input_receiver_fn=exports.raw, warm_up=True)
        path = exporter.export(estimator, str(tmp_path / "e"), checkpoint, {"loss": 1.0}, True)
        assert path is not None
        assert len(records(Path(path.decode()))) == 1
