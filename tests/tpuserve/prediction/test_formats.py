"""Patterns match the files that a user means."""

from pathlib import Path

from tpuserve.prediction.formats import match_files


def test_the_path_of_a_file_with_brackets_matches_the_file(tmp_path: Path) -> None:
    for name in ("rows[1].jsonl", "rows1.jsonl"):
        (tmp_path / name).touch()
    with_brackets, without = f"{tmp_path}/rows[1].jsonl", f"{tmp_path}/rows1.jsonl"
    assert match_files([with_brackets]) == [with_brackets]
    assert match_files([f"{tmp_path}/row[s]1.jsonl"]) == [without]
    assert match_files([f"{tmp_path}/*", without]) == [without, with_brackets]
