"""A Dataset of Ray, on a local cluster of two nodes, has the outputs of `tpuserve predict`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ray = pytest.importorskip("ray", reason="make test-clusters runs it")

from ray.cluster_utils import Cluster  # noqa: E402

import tpuserve.ray  # noqa: E402
from tests.tpuserve.prediction import models  # noqa: E402
from tpuserve.errors import InvalidInputNames, InvalidTensor  # noqa: E402
from tpuserve.prediction.batch_prediction import predict  # noqa: E402
from tpuserve.prediction.formats import OutputFormat  # noqa: E402

pytestmark = pytest.mark.slow

ROWS = 300
TIME_LIMIT = 600


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(tmp_path_factory.mktemp("model") / "1")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a cluster of two nodes."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    nodes.add_node(num_cpus=2)
    try:
        yield nodes.address
    finally:
        nodes.shutdown()


def test_the_recipe_gives_the_outputs_of_tpuserve_predict(
    address: str, model: Path, tmp_path: Path
) -> None:
    for number in range(2):
        x = models.values(ROWS, seed=number)
        path = tmp_path / f"data-{number}.tfrecord"
        models.write_records(path, [models.example(row) for row in x])
    program = Path(__file__).parents[2] / "examples" / "predict_ray_data.py"
    arguments = [str(model), str(tmp_path / "data-*.tfrecord"), str(tmp_path / "ray")]
    subprocess.run(
        [sys.executable, str(program), *arguments, f"--address={address}"],
        check=True,
        timeout=TIME_LIMIT,
    )
    predict(
        model,
        [str(tmp_path / "data-*.tfrecord")],
        tmp_path / "out",
        output_format=OutputFormat.PARQUET,
    )
    table = pq.read_table(tmp_path / "ray").sort_by("sum")
    expected = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "out").glob("*.parquet"))))
    expected = expected.sort_by("sum")
    assert table.num_rows == 2 * ROWS
    assert table.column_names == ["x", "sum", "y"]
    assert table["sum"].to_pylist() == expected["sum"].to_pylist()
    y = np.array(table["y"].to_pylist(), np.float32)
    np.testing.assert_array_equal(y, np.array(expected["y"].to_pylist(), np.float32))
    np.testing.assert_array_equal(y, 2 * np.array(table["x"].to_pylist(), np.float32))


def test_columns_become_inputs_of_their_dtype(model: Path) -> None:
    predictor = tpuserve.ray.Predict(model, "name")
    columns = {"text": np.array(["a", "b"]), "number": np.array([1, 2], np.int32)}
    result = predictor(columns)
    assert sorted(result) == ["name", "number", "text"]
    assert result["name"].tolist() == [b"a-1", b"b-2"]


def test_columns_that_do_not_fit_are_refused(model: Path) -> None:
    predictor = tpuserve.ray.Predict(model)
    with pytest.raises(InvalidInputNames):
        predictor({"z": models.values(2)})
    with pytest.raises(InvalidTensor, match="the column 'x' cannot become the input 'x'"):
        predictor({"x": np.array(["a", "b"])})
    with pytest.raises(InvalidTensor, match="the column 'x' cannot become the input 'x'"):
        predictor({"x": np.array([[1.0], [1.0, 2.0]], object)})
    naming = tpuserve.ray.Predict(model, "name")
    with pytest.raises(InvalidTensor, match="a value is out of the range of int64"):
        naming({"text": np.array(["a"]), "number": np.array([2**63], np.uint64)})
