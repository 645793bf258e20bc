"""Lists the export versions in a base directory."""

import re

import tensorflow as tf

# Matches the names of version directories that exports write: Unix times in seconds. A server also
# accepts shorter numbers, which no export has written.
_VERSION = re.compile(r"[0-9]{10}")


def list_versions(base: str) -> list[str]:
    """List the export versions (ten-digit directory names) under `base`, oldest first."""
    # Remove the slash that object stores append to the name of a directory.
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(base))
    return sorted(name for name in names if _VERSION.fullmatch(name))
