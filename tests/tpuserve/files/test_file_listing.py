"""The files of a directory include those behind symbolic links, and cycles end."""

from pathlib import Path

from tpuserve.files.file_listing import list_files


def test_links_to_directories_and_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "a").touch()
    model = tmp_path / "model"
    (model / "b").mkdir(parents=True)
    (model / "b" / "c").touch()
    for name in ("first", "second"):
        (model / name).symlink_to(tmp_path / "elsewhere")
    (model / "d").symlink_to(model / "b" / "c")
    (model / "broken").symlink_to(tmp_path / "absent")
    names = [path.relative_to(model).as_posix() for path in list_files(model)]
    assert names == ["b/c", "d", "first/deep/a", "second/deep/a"]


def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for directory in (first, second):
        directory.mkdir()
        (directory / "file").touch()
    (first / "itself").symlink_to(first)
    (first / "other").symlink_to(second)
    (second / "back").symlink_to(first)
    assert list_files(first) == [first / "file", first / "other" / "file"]
