"""Finds the directories in which a user's processes keep files for reuse, such as executables."""

import os
from collections.abc import Mapping
from pathlib import Path

ENVIRONMENT_NAME = "TPUSERVE_CACHE_DIR"
EXECUTABLES_VARIABLE = "TPUSERVE_XLA_CACHE_DIR"
"""The environment variable that names the directory of executables for training."""
OFF = "off"
"""In place of a directory of executables: keep none."""


def find_cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return $TPUSERVE_CACHE_DIR if it is set, else tpuserve's part of the user cache directory."""
    import platformdirs

    named = environ.get(ENVIRONMENT_NAME)
    return Path(named) if named else Path(platformdirs.user_cache_dir("tpuserve"))


def find_executables_directory(named: str) -> Path | None:
    """Return the directory that stores executables compiled by XLA; None if none are stored.

    Args:
      named: the directory that the user has named; "" stands for the subdirectory "executables" of
        the cache directory, and `OFF` for no directory.
    """
    if named == OFF:
        return None
    return Path(named) if named else find_cache_directory() / "executables"
