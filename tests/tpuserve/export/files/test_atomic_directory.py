from pathlib import Path
from typing import Any

import pytest

from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export.atomic_directory import AtomicDirectory


@pytest.mark.parametrize(
    "place", ["/tmp/x", "../x", "a/../../x", "", ".", "a/..", "..", "a/"], ids=repr
)
def test_no_file_goes_outside_of_the_version_directory(tmp_path: Path, place: str) -> None:
    with pytest.raises(InvalidSetting, match="not a file below assets.extra/"):
        AtomicDirectory(tmp_path / "m", assets_extra={place: __file__})
    assert list(tmp_path.iterdir()) == []


def test_an_asset_path_is_normalised(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path, assets_extra={"./a/../b/..c": __file__}) as staging:
        pass
    assert (Path(staging.directory) / "assets.extra/b/..c").read_text().startswith("from pathlib")


@pytest.mark.parametrize("place", ["tf_serving_warmup_requests", "./tf_serving_warmup_requests"])
def test_a_warm_up_file_is_either_an_asset_or_written(tmp_path: Path, place: str) -> None:
    AtomicDirectory(tmp_path, assets_extra={place: __file__})
    with pytest.raises(InvalidSetting, match="Leave one of them out"):
        AtomicDirectory(tmp_path, assets_extra={place: __file__}, has_warm_up_file=True)


@pytest.mark.parametrize(
    ("assets_extra", "error", "message"),
    [
        (["f"], InvalidType, r"assets_extra is \['f'\]"),
        ({"a": 3}, InvalidType, "has 'a': 3"),
        ({3: __file__}, InvalidType, "has 3: "),
        ({"a": "/no/such"}, InvalidSetting, "'/no/such', and there is no such file"),
        ({"a": str(Path(__file__).parent)}, InvalidSetting, "a directory. Give its files"),
    ],
)
def test_invalid_assets_are_refused(
    tmp_path: Path, assets_extra: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        AtomicDirectory(tmp_path, assets_extra=assets_extra)


def test_a_base_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "file"
    base.write_text("theirs")
    with (
        pytest.raises(ExportError, match=f"{base} cannot be written: .*; make it"),
        AtomicDirectory(base),
    ):
        pass
    assert base.read_text() == "theirs"


@pytest.mark.parametrize(
    ("base", "error"), [(3, InvalidType), (None, InvalidType), ("", InvalidSetting)]
)
def test_a_base_that_is_no_path_is_refused(base: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="export_dir_base is"):
        AtomicDirectory(base)


def test_assets_below_other_assets_are_refused(tmp_path: Path) -> None:
    inside = {"a": __file__, "a/b": __file__}
    with (
        pytest.raises(ExportError, match="cannot copy .*test_atomic_directory.py of assets_extra"),
        AtomicDirectory(tmp_path, assets_extra=inside),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def export_version(base: Path, second: float) -> int:
    with AtomicDirectory(base, clock=lambda: second) as staging:
        pass
    return int(Path(staging.directory).name)


def test_an_export_is_the_newest_even_if_the_clock_is_set_back(tmp_path: Path) -> None:
    assert export_version(tmp_path, 1_700_000_005.9) == 1_700_000_005
    assert export_version(tmp_path, 1_700_000_005.9) == 1_700_000_006
    assert export_version(tmp_path, 1_700_000_002) == 1_700_000_007
    assert export_version(tmp_path, 1_700_000_100) == 1_700_000_100


def test_the_version_of_a_removed_export_is_not_reused(tmp_path: Path) -> None:
    first, _ = (export_version(tmp_path, 1_700_000_005) for _ in range(2))
    (tmp_path / str(first)).rmdir()
    assert export_version(tmp_path, 1_700_000_005) == 1_700_000_007


def test_directories_that_are_no_export_versions_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "17000000050").mkdir()
    (tmp_path / "3").mkdir()
    assert export_version(tmp_path, 1_700_000_005) == 1_700_000_005


def test_an_export_that_runs_is_not_removed_by_another(tmp_path: Path) -> None:
    with AtomicDirectory(tmp_path) as running:
        (Path(running.path) / "half").write_text("written")
        with AtomicDirectory(tmp_path) as other:
            pass
        assert (Path(running.path) / "half").exists()
    assert sorted(tmp_path.iterdir()) == sorted([Path(running.directory), Path(other.directory)])


def test_only_directories_with_the_name_of_an_export_are_removed(tmp_path: Path) -> None:
    names = ["temp-1600000000", "temp-export-mine", "1600000000"]
    for name in (*names, f"temp-export-{'0' * 32}"):
        (tmp_path / name).mkdir()
    with AtomicDirectory(tmp_path) as staging:
        pass
    assert {path.name for path in tmp_path.iterdir()} == {*names, Path(staging.directory).name}
