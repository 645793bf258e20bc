"""`tpuserve convert`: its output, and one line for each kind of error."""

import contextlib
import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner, Result
from tensorflow.core.protobuf import saved_model_pb2

from tests.tpuserve.export.conversion import models
from tests.tpuserve.saved_model.test_signing import write_keys
from tpuserve.commands.convert import convert
from tpuserve.errors import InvalidSetting, TpuserveError
from tpuserve.saved_model import signing


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.Dense(), tmp_path_factory.mktemp("dense") / "model")


@pytest.fixture(scope="module")
def word_scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.save(models.WordScores(), tmp_path_factory.mktemp("words") / "model")


def run_convert(*arguments: Any) -> Result:
    return CliRunner().invoke(convert, [str(argument) for argument in arguments])


def message_of(result: Result) -> str:
    """Return the error message that `main` prints as one line."""
    assert isinstance(result.exception, TpuserveError)
    return str(result.exception)


def refuse(directory: Path, out: Path, *options: Any) -> str:
    """Run a conversion that must fail and write nothing; return its error message."""
    before = sorted(out.parent.iterdir()) if out.parent.is_dir() else None
    text = message_of(run_convert(directory, out, *options))
    after = sorted(out.parent.iterdir()) if out.parent.is_dir() else None
    assert after == before
    return text


@contextlib.contextmanager
def limited_files(size: int = 8) -> Iterator[None]:
    """Limit the size of files in bytes, so that writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def change(directory: Path, copy: Path, edit: Any) -> Path:
    """Copy a SavedModel, and edit its SavedModel message."""
    shutil.copytree(directory, copy)
    path = copy / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    edit(saved_model)
    path.write_bytes(saved_model.SerializeToString())
    return copy


@pytest.mark.slow
def test_it_says_what_stays_on_the_host_and_that_both_metagraphs_agree(
    word_scores: Path, tmp_path: Path
) -> None:
    result = run_convert(word_scores, tmp_path / "out")
    assert result.exit_code == 0
    lines = [line.split() for line in result.output.splitlines()]
    assert ["serving_default", "11", "12", "tpu_serving_default"] in lines
    (lookup,) = (line for line in lines if line[:1] == ["LookupTableFindV2"])
    assert lookup[1:4] == ["in", "front", "strings"]
    assert lines[-1][0] == "passed:"


def test_json_has_the_conversion_and_the_comparison(dense: Path, tmp_path: Path) -> None:
    data = json.loads(run_convert(dense, tmp_path / "out", "--json").output)
    (signature,) = data["conversion"]["signatures"]
    assert (signature["num_host_ops"], signature["functions"]) == (0, ["tpu_serving_default"])
    assert data["verification"]["passed"] is True
    assert data["passed"] is True


def test_no_verify_leaves_the_comparison_out(dense: Path, tmp_path: Path) -> None:
    data = json.loads(run_convert(dense, tmp_path / "out", "--json", "--no-verify").output)
    assert "verification" not in data


def test_batch_sizes_and_warm_up_are_written(dense: Path, tmp_path: Path) -> None:
    options = ("--allowed_batch_sizes", 1, 4, "--warm_up", "--json")
    data = json.loads(run_convert(dense, tmp_path / "out", *options).output)
    runs = data["verification"]["signatures"][0]["runs"]
    assert [(run["batch_size"], run["source"]) for run in runs] == [
        (1, "warm-up record"),
        (4, "warm-up record"),
    ]


@pytest.mark.numeric
def test_bfloat16_is_compared_with_its_own_tolerance(dense: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.array([[1.001, 2.003]], np.float32))
    options = ("--bfloat16", "--inputs", tmp_path / "inputs.npz")
    data = json.loads(run_convert(dense, tmp_path / "out", *options, "--json").output)
    assert data["passed"] is True
    assert 0 < data["verification"]["largest_absolute"] < 0.02


def test_inputs_of_no_signature_are_refused_before_the_conversion(
    dense: Path, tmp_path: Path
) -> None:
    options = ("--inputs", tmp_path / "inputs.npz")
    assert "cannot read" in refuse(dense, tmp_path / "out", *options)
    np.savez(tmp_path / "inputs.npz", z=np.zeros([1, 2], np.float32))
    assert "has 'z', which is not an input" in refuse(dense, tmp_path / "out", *options)


@pytest.mark.parametrize("option", ["atol", "rtol"])
def test_a_tolerance_that_is_none_is_refused_before_the_conversion(
    dense: Path, tmp_path: Path, option: str
) -> None:
    assert f"{option} is -1" in refuse(dense, tmp_path / "out", f"--{option}", -1)
    assert not (tmp_path / "out").exists()


def test_the_conversion_is_printed_before_a_comparison_that_fails(
    dense: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.zeros([1, 3], np.float32))
    result = run_convert(dense, tmp_path / "out", "--inputs", tmp_path / "inputs.npz")
    assert "has the shape [1, 3]" in message_of(result)
    assert result.output.splitlines()[0].startswith(f"{tmp_path / 'out'}: {{serve}} of ")
    assert (tmp_path / "out" / "saved_model.pb").exists()


def test_metagraphs_that_differ_exit_with_1_and_stay(dense: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.array([[1.001, 2.003]], np.float32))
    options = ("--bfloat16", "--inputs", tmp_path / "inputs.npz", "--atol", 0, "--rtol", 0)
    assert run_convert(dense, tmp_path / "out", *options).exit_code == 1
    assert (tmp_path / "out" / "saved_model.pb").exists()


@pytest.mark.slow
def test_it_compiles_for_a_topology(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("libtpu")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.savez(tmp_path / "x.npz", x=np.ones([3, 2], np.float32))
    options = ("--topology", "v5e:1x1", "--no-verify", "--json", "--allowed_batch_sizes", 8)
    inputs = ("--inputs", tmp_path / "x.npz")
    data = json.loads(run_convert(dense, tmp_path / "out", *options, *inputs).output)
    (compilation,) = data["compilation"]["compilations"]
    assert (compilation["topology"], compilation["error"]) == ("v5e:1x1", None)


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    assert "no saved_model.pb" in refuse(tmp_path, tmp_path / "out")


def test_an_unknown_alias_is_told_with_the_known_ones(dense: Path, tmp_path: Path) -> None:
    text = refuse(dense, tmp_path / "out", "--function", "gone")
    assert "no function has the alias 'gone'" in text
    assert "found tpu_candidate" in text


def test_a_model_without_a_part_that_compiles_is_refused(tmp_path: Path) -> None:
    directory = models.save(models.Upper(), tmp_path / "model")
    text = refuse(directory, tmp_path / "out")
    assert "nothing of signature 'serving_default' would run on a TPU: StringUpper" in text


def test_whole_names_the_op_whose_shape_only_a_run_can_tell(tmp_path: Path) -> None:
    directory = models.save(models.Positive(), tmp_path / "model")
    text = refuse(directory, tmp_path / "out", "--whole")
    assert "cannot run on a TPU as a whole: Where" in text
    assert "its output shape depends on values" in text


def test_an_output_inside_of_the_input_is_refused(dense: Path) -> None:
    assert "is inside of" in refuse(dense, dense / "out")
    assert "is the model to convert" in refuse(dense, dense)


def test_an_output_that_exists_is_refused(dense: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("mine")
    assert "exists already" in refuse(dense, tmp_path / "out")
    assert (tmp_path / "out" / "file").read_text() == "mine"


def test_an_op_of_a_later_tensorflow_is_named_with_the_version(dense: Path, tmp_path: Path) -> None:
    def edit(saved_model: Any) -> None:
        (meta_graph,) = saved_model.meta_graphs
        meta_graph.meta_info_def.tensorflow_version = "2.99.0"
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                node.op = node.op.replace("Relu", "ReluOfTomorrow")

    text = refuse(change(dense, tmp_path / "later", edit), tmp_path / "out")
    assert "ReluOfTomorrow" in text
    assert "TensorFlow 2.99.0" in text


def test_a_graph_that_needs_a_later_tensorflow_is_refused(dense: Path, tmp_path: Path) -> None:
    def edit(saved_model: Any) -> None:
        saved_model.meta_graphs[0].graph_def.versions.min_consumer = 99999

    text = refuse(change(dense, tmp_path / "later", edit), tmp_path / "out")
    assert f"needs a TensorFlow later than {tf.__version__}" in text


def test_a_model_with_a_tpu_metagraph_is_refused(dense: Path, tmp_path: Path) -> None:
    run_convert(dense, tmp_path / "once", "--no-verify")
    text = refuse(tmp_path / "once", tmp_path / "out")
    assert "has a metagraph {serve, tpu} already" in text


def test_a_full_disk_leaves_nothing(dense: Path, tmp_path: Path) -> None:
    with limited_files():
        text = refuse(dense, tmp_path / "out", "--no-verify")
    assert f"{tmp_path / 'out'} cannot be written: File too large" in text


def test_a_disk_that_is_full_at_the_warm_up_file_leaves_nothing(
    dense: Path, tmp_path: Path
) -> None:
    # TensorFlow writes this file, of 20,000 rows of 2 floats.
    options = ("--no-verify", "--warm_up", "--allowed_batch_sizes", 20_000)
    with limited_files(100_000):
        text = refuse(dense, tmp_path / "out", *options)
    assert f"{tmp_path / 'out'} cannot be written: " in text
    assert "File too large" in text


def test_directories_above_the_output_are_made_and_removed_if_nothing_is_written(
    dense: Path, tmp_path: Path
) -> None:
    with limited_files():
        refuse(dense, tmp_path / "new" / "deep" / "out", "--no-verify")
    assert list(tmp_path.iterdir()) == []
    assert run_convert(dense, tmp_path / "new" / "deep" / "out", "--no-verify").exit_code == 0


def test_the_temporary_directory_of_a_killed_conversion_is_removed_by_the_next(
    dense: Path, tmp_path: Path
) -> None:
    killed = tmp_path / f"temp-export-{'0' * 32}"
    killed.mkdir()
    (killed / "half").write_text("written")
    run_convert(dense, tmp_path / "out", "--no-verify")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_missing_variables_file_is_named(dense: Path, tmp_path: Path) -> None:
    shutil.copytree(dense, tmp_path / "cut")
    (tmp_path / "cut" / "variables" / "variables.index").unlink()
    assert "variables/variables.index" in refuse(tmp_path / "cut", tmp_path / "out")


@pytest.mark.slow
def test_it_signs_what_it_writes(dense: Path, tmp_path: Path) -> None:
    private, public = write_keys(tmp_path / "keys")
    result = run_convert(dense, tmp_path / "out", "--no-verify", "--signing_key", private)
    assert result.exit_code == 0
    signing.verify(tmp_path / "out", public)


def test_a_key_that_cannot_sign_is_told_before_anything_is_written(
    dense: Path, tmp_path: Path
) -> None:
    _, public = write_keys(tmp_path / "keys")
    result = run_convert(dense, tmp_path / "out", "--signing_key", public)
    assert isinstance(result.exception, InvalidSetting)
    assert not (tmp_path / "out").exists()
