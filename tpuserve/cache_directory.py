"""The directory in which tpuserve keeps what other processes of the same user can reuse."""

import os
from collections.abc import Mapping
from pathlib import Path

ENVIRONMENT_NAME = "TPUSERVE_CACHE_DIR"


def find_cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return $TPUSERVE_CACHE_DIR if it is set, else tpuserve's part of the user cache directory."""
    import platformdirs

    named = environ.get(ENVIRONMENT_NAME)
    return Path(named) if named else Path(platformdirs.user_cache_dir("tpuserve"))
