from pathlib import Path

from trainer.exporting import gc


def test_the_newest_exports_stay(tmp_path: Path) -> None:
    for name in ("1700000003", "1700000001", "1700000002"):
        (tmp_path / name / "variables").mkdir(parents=True)
    assert gc.remove_old_exports(str(tmp_path), 2) == [str(tmp_path / "1700000001")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1700000002", "1700000003"]


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    others = ["temp-1700000000", "170000000", "17000000000", "1700000000.bak", "assets"]
    for name in [*others, "1700000005"]:
        (tmp_path / name).mkdir()
    (tmp_path / "1600000000").write_text("a file")
    assert gc.remove_old_exports(str(tmp_path), 1) == []
    assert len(list(tmp_path.iterdir())) == len(others) + 2


def test_none_keeps_all(tmp_path: Path) -> None:
    (tmp_path / "1700000000").mkdir()
    (tmp_path / "1700000001").mkdir()
    assert gc.remove_old_exports(str(tmp_path), None) == []


def test_a_directory_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert gc.remove_old_exports(str(tmp_path / "missing"), 1) == []
