"""The programs in docs/ray.md and docs/predict.md run on a local cluster and a local runner."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("apache_beam", reason="make test-clusters runs it")
pytest.importorskip("ray", reason="make test-clusters runs it")

import pyarrow.parquet as pq

from tests import processes
from tests.tpuserve.prediction import models

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Only a cluster that hangs takes as long, in seconds.
TIME_LIMIT = 600
# On a busy machine a proxy takes longer than Ray's five seconds to start.
PROXY_TIMEOUTS = {
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "300",
}
ROWS = 300

ASK = """
import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

request = predict_pb2.PredictRequest()
request.model_spec.name = "digits"
request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.float32([[1, 2]])))
with grpc.insecure_channel("127.0.0.1:8500") as channel:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    response = stub.Predict(request, timeout=600)
print(tf.make_ndarray(response.outputs["y"]).tolist())
"""


def ray_program(text: str) -> str:
    """Return the only program of docs/ray.md that contains a text."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/ray.md").read_text(), re.M | re.S)
    (program,) = (block for block in blocks if text in block)
    assert isinstance(program, str)
    return program


def run_program(program: str, directory: Path, **names: str) -> str:
    """Run a program in a directory, with other names in place of the document's."""
    for name, real in names.items():
        assert name in program
        program = program.replace(name, real)
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env=os.environ | PROXY_TIMEOUTS,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIME_LIMIT,
        check=True,
    )
    return finished.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a model and two files of records."""
    directory = tmp_path_factory.mktemp("documents")
    models.save(directory / "models" / "1")
    for number in range(2):
        records = [models.example(row) for row in models.values(ROWS, seed=number)]
        models.write_records(directory / f"data-{number}.tfrecord", records)
    return directory


def test_ray_serve_answers_the_stub_of_tensorflow_serving(directory: Path) -> None:
    (port,) = processes.free_ports(1)
    program = ray_program("serve.run(") + ASK
    names = {"/models/digits": str(directory / "models"), "8500": str(port)}
    assert "[[2.0, 4.0]]" in run_program(program, directory, **names)


def test_ray_data_writes_the_outputs_of_all_rows(directory: Path) -> None:
    names = {"/models/digits/1": str(directory / "models" / "1")}
    # Two actors and a reader need three processors.
    start = "import ray\n\nray.init(num_cpus=3)\n"
    run_program(start + ray_program("map_batches"), directory, **names)
    assert pq.read_table(directory / "out").num_rows == 2 * ROWS


def test_ray_train_runs_the_program_in_two_workers(tmp_path: Path) -> None:
    program = str(ROOT / "examples" / "train.py")
    run_program(
        ray_program("TensorflowTrainer("),
        tmp_path,
        **{"train.py": program, "/mnt/shared/line": str(tmp_path / "line")},
    )
    assert list(tmp_path.glob("line/model.ckpt-*.index"))


def test_beam_writes_a_log_for_each_record(directory: Path) -> None:
    document = (ROOT / "docs/predict.md").read_text()
    (block,) = re.findall(r"^(    import apache_beam.*?\n)(?=\S)", document, re.M | re.S)
    names = {
        "/models/line/1": str(directory / "models" / "1"),
        'WriteToTFRecord("out"': 'WriteToTFRecord("beam"',
    }
    run_program(textwrap.dedent(block), directory, **names)
    assert list(directory.glob("beam*"))
