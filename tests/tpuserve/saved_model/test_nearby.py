from pathlib import Path

import pytest

from tests.tpuserve import saved_models
from tpuserve.errors import NotFound
from tpuserve.saved_model.proto_file import find_saved_model_file


@pytest.fixture
def version(tmp_path: Path) -> Path:
    return saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "half" / "1")


def error_for(path: Path) -> str:
    with pytest.raises(NotFound) as error:
        find_saved_model_file(path)
    return str(error.value)


def test_part_of_a_saved_model_names_the_whole(version: Path) -> None:
    assert error_for(version / "variables").endswith(
        f"which is a part of the SavedModel {version}. Name {version}."
    )
    assert error_for(version / "variables" / "variables.index").endswith(f"such as {version}.")


def test_parent_of_models_names_their_versions(version: Path) -> None:
    assert error_for(version.parent.parent).endswith(
        f"found the SavedModels {version}. Name one of them."
    )


def test_version_that_is_not_there_names_its_neighbours(version: Path) -> None:
    assert error_for(version.parent / "2") == (
        f"no directory {version.parent / '2'}; found version directories 1 beside it. Name one of "
        f"them: {version}"
    )


def test_model_in_text_form_counts_as_a_version(version: Path) -> None:
    (version / "saved_model.pb").rename(version / "saved_model.pbtxt")
    assert error_for(version.parent).endswith(f"Name one of them: {version}")


def test_file_of_keras_names_the_command_that_exports_it(tmp_path: Path) -> None:
    path = tmp_path / "digits.keras"
    path.write_bytes(b"PK")
    command = f"tpuserve export {path} {tmp_path / 'digits'}"
    assert error_for(path).endswith(
        f"a file of Keras and no SavedModel. Make a SavedModel for CPU and TPU of it: {command}"
    )
    assert error_for(tmp_path).endswith(command)


def test_many_versions_are_counted(tmp_path: Path) -> None:
    for number in range(12):
        saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / str(number))
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more." in error_for(tmp_path)
