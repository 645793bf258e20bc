from pathlib import Path

import pytest

from tests.tpuserve import saved_models
from tpuserve.saved_model import missing_files, proto_file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return saved_models.copy_of_words(tmp_path / "1")


def problems(directory: Path) -> list[str]:
    proto = proto_file.parse_saved_model_file(proto_file.find_saved_model_file(directory))
    return missing_files.describe_missing_files(directory, proto.meta_graphs)


def test_complete_directory_has_no_problem(directory: Path) -> None:
    assert problems(directory) == []


def test_graph_without_a_restore_op_needs_no_variables(tmp_path: Path) -> None:
    model = saved_models.half_plus_two()
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    assert problems(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("variables.index", "variables/variables.index"),
        ("variables.data-00000-of-00001", "variables/variables.data-00000-of-00001"),
    ],
)
def test_missing_variables_file_is_named(directory: Path, name: str, file: str) -> None:
    (directory / "variables" / name).unlink()
    (problem,) = problems(directory)
    assert problem == (
        f"{file} is missing in {directory}, and the model cannot run without. Copy the whole "
        f"directory, or export the model again."
    )


def test_missing_shard_is_inferred_from_the_names_of_the_others(directory: Path) -> None:
    shard = directory / "variables" / "variables.data-00000-of-00001"
    shard.rename(shard.with_name("variables.data-00001-of-99999"))
    (problem,) = problems(directory)
    assert "00000-of-99999, " in problem
    assert "variables.data-00001-" not in problem
    assert "and 99995 other files are missing" in problem


def test_missing_variables_directory_and_asset_are_named(directory: Path) -> None:
    (directory / "variables").rename(directory / "elsewhere")
    (directory / "assets" / "vocabulary.txt").unlink()
    without_variables, without_asset = problems(directory)
    assert without_variables.startswith("variables/ is missing")
    assert without_asset.startswith("assets/vocabulary.txt is missing")


def test_cut_shard_is_noticed(directory: Path) -> None:
    shard = directory / "variables" / "variables.data-00000-of-00001"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    (problem,) = problems(directory)
    assert problem == (
        f"variables/{shard.name} in {directory} has {len(whole) - 1} bytes of {len(whole)}: it was "
        f"cut. Copy the whole directory, or export the model again."
    )


@pytest.mark.parametrize("length", [0, 10, 100, -1])
def test_cut_index_is_noticed(directory: Path, length: int) -> None:
    index = directory / "variables" / "variables.index"
    index.write_bytes(index.read_bytes()[:length])
    (problem,) = problems(directory)
    assert problem.startswith("variables/variables.index in ")
    assert "cannot be read: it does not end as such a file does" in problem


def test_damaged_index_is_noticed_or_read_and_no_other_error(directory: Path) -> None:
    index = directory / "variables" / "variables.index"
    whole = index.read_bytes()
    for position in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        index.write_bytes(damaged)
        for problem in problems(directory):
            assert "cannot be read: " in problem or "it was cut" in problem
