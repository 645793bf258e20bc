"""A file is uploaded whole, or the error says that it cannot be written, and why."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from server.storage.file_systems import translated_errors
from server.storage.upload import check_can_upload, upload_file
from tpuserve.errors import CodedError, ExtraNotInstalled, TpuserveError, Unavailable


def test_file_has_another_name_until_it_is_complete(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "name.partial").mkdir()
    with pytest.raises(TpuserveError):
        upload_file(tmp_path / "file", f"file://{tmp_path}/there/name")
    assert not (tmp_path / "there" / "name").exists()
    (tmp_path / "there" / "name.partial").rmdir()
    upload_file(tmp_path / "file", f"file://{tmp_path}/there/name")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["name"]
    assert (tmp_path / "there" / "name").read_bytes() == b"content"


def test_refusal_names_the_right_to_write() -> None:
    text = (
        "^s3://bucket/a cannot be written with the credentials of this server: no. Set "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a key that may write to it.$"
    )
    with pytest.raises(CodedError, match=text), translated_errors("s3://bucket/a", is_written=True):
        raise PermissionError("no")


def test_missing_bucket_is_tried_again() -> None:
    text = "^s3://absent/a cannot be written: no such bucket. The server tries again; "
    with (
        pytest.raises(Unavailable, match=text),
        translated_errors("s3://absent/a", is_written=True),
    ):
        raise FileNotFoundError("no such bucket")


def test_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "s3fs" else find(name)
    )
    with pytest.raises(ExtraNotInstalled, match="^request log s3://b/a needs the package s3fs"):
        check_can_upload("s3://b/a", "request log")
