"""A symbolic link may lead to a path inside the base path, but not outside."""

from pathlib import Path

import pytest

from server.servables import saved_model_loader
from tpuserve.errors import Code, CodedError


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").touch()
    (tmp_path / "base" / "1" / "variables").mkdir(parents=True)
    return tmp_path / "base"


def test_plain_files_are_taken(base: Path) -> None:
    (base / "1" / "saved_model.pb").touch()
    saved_model_loader.check_no_escaping_symlinks(base / "1")


def test_link_within_the_base_path_is_taken(base: Path) -> None:
    (base / "2").symlink_to(base / "1")
    saved_model_loader.check_no_escaping_symlinks(base / "2")


def test_base_path_may_be_a_link_itself(base: Path) -> None:
    (base.parent / "current").symlink_to(base)
    saved_model_loader.check_no_escaping_symlinks(base.parent / "current" / "1")


def test_version_that_leads_out_is_refused(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The error, which clients can read, does not tell the target; the log does."""
    (base / "2").symlink_to(base.parent / "outside")
    with pytest.raises(
        CodedError,
        match="/base/2 leads out of the base path .*/base. Put",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ) as caught:
        saved_model_loader.check_no_escaping_symlinks(base / "2")
    assert "outside" not in str(caught.value)
    assert f"{base}/2 leads to {base.parent}/outside" in caplog.text


@pytest.mark.parametrize("place", ["saved_model.pb", "variables/variables.index"])
def test_file_that_leads_out_is_refused(base: Path, place: str) -> None:
    (base / "1" / place).symlink_to(base.parent / "outside" / "secret")
    with pytest.raises(
        CodedError,
        match=f"{place} leads out of",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        saved_model_loader.check_no_escaping_symlinks(base / "1")


def test_base_path_that_is_a_version_itself_may_be_a_link(base: Path) -> None:
    (base / "1" / "saved_model.pb").touch()
    (base.parent / "current").symlink_to(base / "1")
    current = base.parent / "current"
    saved_model_loader.check_no_escaping_symlinks(current, current)


def test_link_to_a_neighbour_of_a_base_path_that_is_a_version_is_refused(base: Path) -> None:
    (base / "2").touch()
    (base / "1" / "saved_model.pb").symlink_to(base / "2")
    with pytest.raises(
        CodedError,
        match="/1/saved_model.pb leads out of the base path .*/base/1",
        check=lambda error: error.code is Code.PERMISSION_DENIED,
    ):
        saved_model_loader.check_no_escaping_symlinks(base / "1", base / "1")
