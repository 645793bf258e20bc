"""Files of Keras are found, and their changes are noticed once they are written."""

from pathlib import Path

import pytest

from server.storage.keras_files import FileDigests, digest_of, find_keras_file


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["m.keras"], "m.keras"),
        (["m.keras", "saved_model.pb"], None),
        (["m.keras", "model.tflite"], None),
        (["m.keras", "n.keras"], None),
        (["m.h5"], None),
        ([], None),
    ],
)
def test_only_keras_file_of_a_directory_is_found(
    tmp_path: Path, names: list[str], found: str | None
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert find_keras_file(tmp_path) == (None if found is None else tmp_path / found)


def test_changed_content_counts_once_two_calls_agree(tmp_path: Path) -> None:
    file, digests = tmp_path / "m.keras", FileDigests()
    file.write_text("first")
    first = digests.find(file)
    assert first == digest_of(file)
    file.write_text("half of the sec")
    assert digests.find(file) == first
    file.write_text("half of the second")
    assert digests.find(file) == first
    assert digests.find(file) == digest_of(file) != first


def test_equal_content_has_one_digest(tmp_path: Path) -> None:
    for name in ("a.keras", "b.keras"):
        (tmp_path / name).write_text("same")
    digests = FileDigests()
    assert digests.find(tmp_path / "a.keras") == digests.find(tmp_path / "b.keras")
