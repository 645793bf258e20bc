"""Patterns match the files that a user means."""

from pathlib import Path

import pytest

from tpuserve.errors import NotFound
from tpuserve.prediction.formats import match_files


def test_the_path_of_a_file_with_brackets_matches_the_file(tmp_path: Path) -> None:
    for name in ("rows[1].jsonl", "rows1.jsonl"):
        (tmp_path / name).touch()
    with_brackets, without = f"{tmp_path}/rows[1].jsonl", f"{tmp_path}/rows1.jsonl"
    assert match_files([with_brackets]) == [with_brackets]
    assert match_files([f"{tmp_path}/row[s]1.jsonl"]) == [without]
    assert match_files([f"{tmp_path}/*", without]) == [without, with_brackets]


def test_patterns_match_files_and_not_directories(tmp_path: Path) -> None:
    (tmp_path / "day" / "hour").mkdir(parents=True)
    paths = [tmp_path / "a.jsonl", tmp_path / "day" / "b.jsonl", tmp_path / "day" / "hour" / "c"]
    for path in paths:
        path.touch()
    (tmp_path / "broken").symlink_to(tmp_path / "absent")
    assert match_files([f"{tmp_path}/**"]) == list(map(str, paths))
    with pytest.raises(NotFound, match="matches no file"):
        match_files([f"{tmp_path}/da*"])
