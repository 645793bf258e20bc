"""Uploads files to remote file systems, where nobody sees a part of a file."""

import importlib.util
from pathlib import Path

from server.storage.file_systems import (
    OBJECT_STORES,
    check_installed,
    open_file_system,
    scheme_of,
    translated_errors,
)
from tpuserve.errors import ExtraNotInstalled, InvalidConfig

_READ_ONLY = ("http", "https")
_PARTIAL_SUFFIX = ".partial"


def check_can_upload(url: str, purpose: str) -> None:
    """Check that there is a library that writes to the file system of a URL.

    Args:
      purpose: what is uploaded, for the errors.

    Raises:
      ExtraNotInstalled: fsspec, or the package that it needs for the URL, is not installed.
      InvalidConfig: fsspec does not know the file system, or it cannot be written.
    """
    scheme = scheme_of(url)
    if scheme in _READ_ONLY:
        raise InvalidConfig(
            f"{purpose}: {url} is of a web server, which takes no files. Give a directory or a URL "
            f"of an object store, as s3://BUCKET/NAME."
        )
    if scheme in OBJECT_STORES or importlib.util.find_spec("fsspec") is None:
        check_installed(url, purpose)
        return
    import fsspec

    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise ExtraNotInstalled(f"{purpose}: {url} needs another package: {error}.") from error
    except ValueError as error:
        raise InvalidConfig(
            f"{purpose}: {url} has a scheme that fsspec does not know. Give a directory or a URL "
            f"of an object store, as s3://BUCKET/NAME."
        ) from error


def upload_file(path: Path, url: str) -> None:
    """Upload a file, which appears at the URL when it is complete.

    Raises:
      TpuserveError: the file cannot be uploaded.
    """
    with translated_errors(url, is_written=True):
        if scheme_of(url) in OBJECT_STORES:
            # An object appears when all its bytes have arrived.
            open_file_system(url).put_file(str(path), url)
            return
        import fsspec

        file_system, target = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        file_system.makedirs(target.rpartition("/")[0], exist_ok=True)
        file_system.put_file(str(path), target + _PARTIAL_SUFFIX)
        file_system.mv(target + _PARTIAL_SUFFIX, target)
