"""Version directories are found as TensorFlow Serving finds them."""

from pathlib import Path

import pytest

from server.config.model_config import AllPolicy, LatestPolicy, SpecificPolicy
from server.models.repository import Repository, latest_versions
from tpuserve.errors import BasePathNotFound, VersionNotFound


def make_repository(base: Path, *names: str) -> Repository:
    for name in names:
        (base / name).mkdir()
    return Repository(base)


def test_directories_named_by_numbers_are_versions(tmp_path: Path) -> None:
    repository = make_repository(tmp_path, "000123", "7", "best", "1.5", "-2", "٣")
    assert repository.versions() == {123: tmp_path / "000123", 7: tmp_path / "7"}


def test_files_and_numbers_beyond_64_bits_are_no_versions(tmp_path: Path) -> None:
    (tmp_path / "8").touch()
    assert make_repository(tmp_path, str(2**63), "9" * 200).versions() == {}


def test_loops_of_symbolic_links_are_no_versions(tmp_path: Path) -> None:
    for name in ("latest", "9"):
        (tmp_path / name).symlink_to(name)
    assert make_repository(tmp_path, "3").versions() == {3: tmp_path / "3"}


def test_aspired_version_that_cannot_be_examined_stays(tmp_path: Path) -> None:
    for name in ("8", "9"):
        (tmp_path / name).symlink_to(name)
    repository = Repository(tmp_path, aspired=[tmp_path / "8"])
    assert repository.aspired_versions() == {8: tmp_path / "8"}


def test_latest_version_is_the_highest_number(tmp_path: Path) -> None:
    assert make_repository(tmp_path, "9", "10").aspired_versions() == {10: tmp_path / "10"}


def test_later_of_two_names_of_one_number_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert make_repository(tmp_path, "05", "5").aspired_versions() == {5: tmp_path / "5"}
    assert "05 and 5" in caplog.text


def test_latest_takes_as_many_as_there_are() -> None:
    assert list(latest_versions({1: Path("/1"), 2: Path("/2")}, 5)) == [1, 2]


def test_missing_base_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(BasePathNotFound, match=r"/absent cannot be read: No such file"):
        Repository(tmp_path / "absent").aspired_versions()


def test_file_as_base_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BasePathNotFound, match="Not a directory"):
        Repository(tmp_path / "file").aspired_versions()


def test_base_path_without_a_version_says_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(VersionNotFound, match="Export the model to a directory named") as caught:
        make_repository(tmp_path, "best").aspired_versions()
    assert caught.value.text_for_operators.endswith(" The directory has best.")
    assert "best" not in str(caught.value).replace(str(tmp_path), "")


def test_directory_above_a_base_path_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "a_file").touch()
    make_repository(tmp_path, "checkpoints", "export", "export/1")
    with pytest.raises(VersionNotFound) as caught:
        Repository(tmp_path).aspired_versions()
    assert caught.value.text_for_operators == (
        f"no version directory in {tmp_path}. Export the model to a directory named a number, as "
        f"{tmp_path}/1. {tmp_path}/export has version directories. Give that base path."
    )


@pytest.mark.parametrize(("name", "number"), [("resnet", 1), ("0042", 42), ("0", 0)])
@pytest.mark.parametrize("file", ["saved_model.pb", "saved_model.pbtxt"])
def test_base_path_that_is_a_saved_model_is_the_only_version(
    tmp_path: Path, name: str, number: int, file: str
) -> None:
    (tmp_path / name / "variables").mkdir(parents=True)
    (tmp_path / name / file).touch()
    assert Repository(tmp_path / name).aspired_versions() == {number: tmp_path / name}


def test_numbered_directories_come_before_a_saved_model_in_the_base_path(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    assert make_repository(tmp_path, "3").aspired_versions() == {3: tmp_path / "3"}


def test_all_versions_are_aspired_by_that_policy(tmp_path: Path) -> None:
    make_repository(tmp_path, "1", "2")
    assert Repository(tmp_path, AllPolicy()).aspired_versions().keys() == {1, 2}


def test_latest_so_many_are_aspired(tmp_path: Path) -> None:
    make_repository(tmp_path, "1", "2", "3")
    assert Repository(tmp_path, LatestPolicy(2)).aspired_versions().keys() == {2, 3}


def test_specific_versions_are_aspired_as_far_as_they_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_repository(tmp_path, "1", "2", "3")
    assert Repository(tmp_path, SpecificPolicy((1, 9))).aspired_versions() == {1: tmp_path / "1"}
    assert "version [9]" in caplog.text


def test_specific_version_is_looked_for_by_its_plain_name_first(tmp_path: Path) -> None:
    make_repository(tmp_path, "5", "50", "0007", "05")
    assert Repository(tmp_path, SpecificPolicy((5, 7))).aspired_versions() == {
        5: tmp_path / "5",
        7: tmp_path / "0007",
    }


def test_none_of_the_specific_versions_is_told(tmp_path: Path) -> None:
    make_repository(tmp_path, "1", "2")
    with pytest.raises(VersionNotFound, match=r"none of the versions 8, 9 in .*; found 1, 2\."):
        Repository(tmp_path, SpecificPolicy((8, 9))).aspired_versions()


def find_export(place: Path, number: int) -> Path | None:
    """Return the place of the export, in a stand-in for the cache."""
    is_keras = place.suffix == ".keras" or (place / "m.keras").is_file()
    return Path("/cache", place.name, str(number)) if is_keras else None


@pytest.mark.parametrize(("name", "number"), [("half.keras", 1), ("17.keras", 17)])
def test_keras_file_is_a_version_itself(tmp_path: Path, name: str, number: int) -> None:
    (tmp_path / name).touch()
    repository = Repository(tmp_path / name, find_export=find_export)
    assert repository.aspired_versions() == {number: Path("/cache", name, str(number))}


def test_version_directory_may_hold_a_keras_file(tmp_path: Path) -> None:
    make_repository(tmp_path, "1", "2")
    (tmp_path / "2" / "m.keras").touch()
    repository = Repository(tmp_path, AllPolicy(), find_export=find_export)
    assert repository.aspired_versions() == {1: tmp_path / "1", 2: Path("/cache/2/2")}


def test_keras_file_that_is_not_exported_is_told_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "half.keras").touch()
    with pytest.raises(BasePathNotFound, match=r"Make a SavedModel .*: tpuserve export /"):
        Repository(tmp_path / "half.keras").aspired_versions()
