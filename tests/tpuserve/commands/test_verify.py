"""`tpuserve verify`: its output, its exit codes, and one line for each kind of error."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner, Result
from tensorflow.core.protobuf import saved_model_pb2

from tests.tpuserve.verification import exports
from tpuserve.commands.verify import verify
from tpuserve.errors import TpuserveError

v1 = tf.compat.v1


def double(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": 2.0 * inputs["x"]}


@pytest.fixture(scope="module")
def doubled_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exports.write_export(tmp_path_factory.mktemp("doubled"), double)


def run_verify(*arguments: Any) -> Result:
    return CliRunner().invoke(verify, [str(argument) for argument in (*arguments, "--runs", 0)])


def test_equal_metagraphs_exit_with_0(doubled_model: Path) -> None:
    result = run_verify(doubled_model)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "passed: largest absolute difference 0"


def test_different_metagraphs_exit_with_1(tmp_path: Path) -> None:
    result = run_verify(
        exports.write_export(tmp_path, double, lambda inputs: {"y": 2.1 * inputs["x"]})
    )
    assert result.exit_code == 1
    assert "failed: signatures that failed: serving_default" in result.output


def test_json_has_all_batch_sizes(doubled_model: Path) -> None:
    result = run_verify(doubled_model, "--json", "--batch-size", 2, "--batch-size", 3)
    data = json.loads(result.output)
    assert [run["batch_size"] for run in data["signatures"][0]["runs"]] == [2, 3]
    assert data["passed"] is True


def message_of(result: Result) -> str:
    """Return the error message that `main` prints as one line."""
    assert isinstance(result.exception, TpuserveError)
    return str(result.exception)


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    assert "no directory" in message_of(run_verify(tmp_path / "none"))


def test_a_truncated_saved_model_is_reported(doubled_model: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(doubled_model, tmp_path / "cut"))
    path = directory / "saved_model.pb"
    path.write_bytes(path.read_bytes()[:-20])
    assert "damaged" in message_of(run_verify(directory))


def test_missing_variables_are_reported(tmp_path: Path) -> None:
    module = tf.Module()
    module.w = tf.Variable(2.0)
    module.f = tf.function(lambda x: x * module.w, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path), signatures=module.f)
    shutil.rmtree(tmp_path / "variables")
    path = tmp_path / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    model.meta_graphs.add().CopyFrom(model.meta_graphs[0])
    model.meta_graphs[1].meta_info_def.tags.append("tpu")
    path.write_bytes(model.SerializeToString())
    assert "variables" in message_of(run_verify(tmp_path))


def test_inputs_that_do_not_fit_are_reported(doubled_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones([1, 3], np.float32))
    assert "has the shape [1, 3]" in message_of(run_verify(doubled_model, "--inputs", path))
    np.savez(path, z=np.ones([1, 2], np.float32))
    assert "has 'z', which is not an input of any signature" in message_of(
        run_verify(doubled_model, "--inputs", path)
    )
    assert "cannot read" in message_of(run_verify(doubled_model, "--inputs", tmp_path / "none.npz"))


def test_an_unknown_signature_is_reported(doubled_model: Path) -> None:
    assert "no signature 'other'" in message_of(run_verify(doubled_model, "--signature", "other"))


@pytest.mark.slow
def test_nothing_but_the_report_is_printed(doubled_model: Path) -> None:
    code = "from tpuserve.commands.verify import verify; verify()"
    result = subprocess.run(
        [sys.executable, "-c", code, str(doubled_model), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    assert json.loads(result.stdout)["passed"] is True
