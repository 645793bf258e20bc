"""Lists the export versions in a base directory."""

import re

import tensorflow as tf

# Matches the names that exports give to version directories: Unix times in seconds, of ten digits.
# Servers also accept other numbers as versions, but no export writes such a directory.
_VERSION = re.compile(r"[0-9]{10}")


def list_versions(base: str) -> list[str]:
    """List the export versions (ten-digit directory names) under `base`, oldest first."""
    # Remove the slash at the end of the names of directories in an object store, such as Google
    # Cloud Storage.
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(base))
    return sorted(name for name in names if _VERSION.fullmatch(name))
