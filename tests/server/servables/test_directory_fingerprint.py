"""The fingerprint of a directory changes when any file in the directory changes."""

from pathlib import Path

from server.servables import directory_fingerprint


def test_same_files_look_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    assert directory_fingerprint.directory_fingerprint(
        tmp_path
    ) == directory_fingerprint.directory_fingerprint(tmp_path)


def test_file_that_grows_or_comes_is_seen(tmp_path: Path) -> None:
    looks = [directory_fingerprint.directory_fingerprint(tmp_path)]
    (tmp_path / "sub").mkdir()
    for text in ("1", "12"):
        (tmp_path / "sub" / "a").write_text(text)
        looks.append(directory_fingerprint.directory_fingerprint(tmp_path))
    assert len(set(looks)) == 3


def test_missing_directory_and_dangling_link_are_no_error(tmp_path: Path) -> None:
    assert directory_fingerprint.directory_fingerprint(tmp_path / "none") == ()
    (tmp_path / "link").symlink_to("nowhere")
    assert len(directory_fingerprint.directory_fingerprint(tmp_path)) == 1
