"""A pipeline of Beam, on its local runner, predicts what `tpuserve predict` predicts."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

beam = pytest.importorskip("apache_beam", reason="make test-clusters runs it")

from apache_beam.ml.inference import base  # noqa: E402
from apache_beam.testing import util  # noqa: E402
from tensorflow_serving.apis import prediction_log_pb2  # noqa: E402

from tests.tpuserve.prediction import models  # noqa: E402
from tpuserve.beam import (  # noqa: E402
    CreateModelHandler,
    InferenceSpecType,
    RunInference,
    SavedModelSpec,
)
from tpuserve.errors import InvalidSetting, NotFound  # noqa: E402
from tpuserve.prediction.batch_prediction import predict  # noqa: E402

pytestmark = pytest.mark.slow

ROWS = 300


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("model") / "1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [models.example(row) for row in models.values(ROWS)]
    return models.write_records(tmp_path_factory.mktemp("data") / "data.tfrecord", records)


def pipeline_output(data: Path, transform: Any, out: Path) -> list[bytes]:
    """Run a pipeline with Beam's own reader and writer of TFRecord files; return its records."""
    with beam.Pipeline(runner="DirectRunner") as pipeline:
        (
            pipeline
            | beam.io.ReadFromTFRecord(str(data))
            | transform
            | beam.Map(lambda log: log.SerializeToString())
            | beam.io.WriteToTFRecord(str(out))
        )
    return [
        log.SerializeToString(deterministic=True)
        for path in out.parent.glob(f"{out.name}*")
        for log in read_logs(path)
    ]


def read_logs(path: Path) -> list[Any]:
    import tensorflow as tf

    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


@pytest.mark.parametrize("signature", ["serving_default", "examples"])
def test_run_inference_gives_the_logs_of_tpuserve_predict(
    model: Path, data: Path, tmp_path: Path, signature: str
) -> None:
    spec = InferenceSpecType(SavedModelSpec(str(model), ["serve"], [signature]))
    logs = pipeline_output(data, RunInference(spec), tmp_path / "beam")
    predict(model, [str(data)], tmp_path / "out", signature_name=signature)
    expected = read_logs(tmp_path / "out" / "predictions-00000-of-00001.tfrecord")
    assert len(logs) == ROWS
    assert sorted(logs) == sorted(log.SerializeToString(deterministic=True) for log in expected)


def test_a_model_handler_takes_keys_and_messages(model: Path) -> None:
    import tensorflow as tf

    x = models.values(3)
    spec = InferenceSpecType(SavedModelSpec(str(model)))
    handler = base.KeyedModelHandler(CreateModelHandler(spec, max_batch_size=2))
    with beam.Pipeline(runner="DirectRunner") as pipeline:
        keyed = [
            (number, tf.train.Example.FromString(models.example(row)))
            for number, row in enumerate(x)
        ]
        sums = (
            pipeline
            | beam.Create(keyed)
            | base.RunInference(handler)
            | beam.MapTuple(lambda key, log: (key, first_sum(log)))
        )
        util.assert_that(
            sums,
            util.equal_to(
                [(number, float(row.sum() * 2)) for number, row in enumerate(x)],
                lambda expected, actual: (
                    expected[0] == actual[0] and abs(expected[1] - actual[1]) < 1e-5
                ),
            ),
        )


def first_sum(log: Any) -> float:
    import tensorflow as tf

    return float(tf.make_ndarray(log.predict_log.response.outputs["sum"])[0])


def test_specifications_that_name_no_model_are_refused(model: Path) -> None:
    with pytest.raises(InvalidSetting, match="names no SavedModel"):
        CreateModelHandler(InferenceSpecType())
    with pytest.raises(NotFound):
        CreateModelHandler(InferenceSpecType(SavedModelSpec(str(model / "none"))))
    with pytest.raises(InvalidSetting, match="signatures a, b"):
        CreateModelHandler(InferenceSpecType(SavedModelSpec(str(model), (), ["a", "b"])))


def test_the_example_predicts_a_file(model: Path, data: Path, tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "examples" / "predict_beam.py"
    arguments = [str(model), str(data), str(tmp_path / "out")]
    subprocess.run([sys.executable, str(program), *arguments], check=True, timeout=600)
    assert sum(len(read_logs(path)) for path in tmp_path.glob("out*")) == ROWS
