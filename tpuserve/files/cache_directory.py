"""Finds the directories in which tpuserve caches files for later runs, such as executables."""

import os
from pathlib import Path

ENVIRONMENT_NAME = "TPUSERVE_CACHE_DIR"
EXECUTABLES_VARIABLE = "TPUSERVE_XLA_CACHE_DIR"
"""The environment variable that names the directory of executables for training."""
OFF = "off"
"""The name that a user gives instead of a directory, so that no executables are cached."""


def find_cache_directory() -> Path:
    """Return the directory for all cached files of the current user.

    It is $TPUSERVE_CACHE_DIR if that is set, else a subdirectory of the platform's user cache
    directory, such as ~/.cache/tpuserve.
    """
    import platformdirs

    named = os.environ.get(ENVIRONMENT_NAME)
    return Path(named) if named else Path(platformdirs.user_cache_dir("tpuserve"))


def find_executables_directory(named: str) -> Path | None:
    """Return the directory in which executables that XLA has compiled are cached.

    Args:
      named: the directory that the user has set; "" for the default, the subdirectory "executables"
        of the cache directory; `OFF` to cache no executables.
    """
    if named == OFF:
        return None
    return Path(named) if named else find_cache_directory() / "executables"
