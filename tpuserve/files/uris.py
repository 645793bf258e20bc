"""Distinguishes URIs, such as s3://bucket/half, from local paths."""

import os
import re
from pathlib import Path

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Matches the text of a Path that was created from a URI, such as s3:/bucket/half: pathlib replaces
# the two slashes after the colon by one.
_URI_AS_PATH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)(.*)")


def is_uri(path: str) -> bool:
    """Return whether a path is a URI, such as "gs://bucket/resnet" or "file:///models"."""
    return _URI.match(path) is not None


def absolute_path_or_uri(path: str | os.PathLike[str]) -> str:
    """Return a path as an absolute path, and a URI unchanged."""
    text = os.fspath(path)
    return text if is_uri(text) else os.path.abspath(text)


def why_not_local(path: Path) -> str | None:
    """Return the error message for a URI where a local path is required; None for a path."""
    match = _URI_AS_PATH.fullmatch(str(path))
    if match is None:
        return None
    scheme, rest = match.groups()
    if scheme.lower() == "file":
        return f"file:///{rest} is a URI, and a path is required. Name /{rest}."
    uri = f"{scheme}://{rest}"
    return (
        f"{uri} is a URI, which only `tpuserve serve` reads. Copy it to this machine, as Python "
        f'does with fsspec.filesystem("{scheme}").get("{uri}", "COPY", recursive=True), and name '
        f"the copy."
    )
