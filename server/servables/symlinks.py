"""Refuses symbolic links to files outside of a model's base path."""

import logging
import os
from pathlib import Path

from tpuserve.errors import Code, CodedError

logger = logging.getLogger(__name__)


def check_no_escaping_symlinks(directory: Path, base_path: Path | None = None) -> None:
    """Check that no symbolic link in a version leads to a path outside of the model's base path."""
    base = str(directory.parent if base_path is None else base_path)
    real_base = os.path.realpath(base)
    _check_path(str(directory), base, real_base)
    for parent, directories, names in os.walk(directory):
        for name in (*directories, *names):
            _check_path(os.path.join(parent, name), base, real_base)


def _check_path(path: str, base: str, real_base: str) -> None:
    real = os.path.realpath(path)
    if os.path.commonpath([real, real_base]) != real_base:
        # Tell the target only in the log: clients read the error in the status of the model.
        logger.warning("%s leads to %s", path, real)
        raise CodedError(
            f"{path} leads out of the base path {base}. Put the files inside the base path, or "
            f"serve with --allow_links if you trust the link.",
            Code.PERMISSION_DENIED,
        )
