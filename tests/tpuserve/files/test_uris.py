"""URIs stay as they are, and are refused with the way to a copy where a path is needed."""

from pathlib import Path

import pytest

from tpuserve.files import uris


@pytest.mark.parametrize("uri", ["s3://models/half", "file:///models/half", "HTTP://host/half/"])
def test_a_uri_is_no_relative_path(uri: str) -> None:
    assert uris.is_uri(uri)
    assert uris.absolute_path_or_uri(uri) == uri


@pytest.mark.parametrize("path", ["half", "a:b/half", Path("/models/half")])
def test_a_path_becomes_absolute(path: str | Path) -> None:
    assert uris.absolute_path_or_uri(path) == str(Path.cwd() / path)
    assert uris.why_not_local(Path(path)) is None


def test_a_uri_in_place_of_a_path_is_told_with_the_copy_to_make() -> None:
    assert uris.why_not_local(Path("gs://models/half/1")) == (
        "gs://models/half/1 is a URI, which only `tpuserve serve` reads. Copy it to this machine, "
        'as Python does with fsspec.filesystem("gs").get("gs://models/half/1", "COPY", '
        "recursive=True), and name the copy."
    )
    assert uris.why_not_local(Path("file:///models/half/1")) == (
        "file:///models/half/1 is a URI, and a path is required. Name /models/half/1."
    )
