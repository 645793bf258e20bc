"""Lists the export versions in a base directory."""

import re

import tensorflow as tf

# Exports are named by a Unix time in seconds. A server accepts other numbers as versions, too.
_VERSION = re.compile(r"[0-9]{10}")


def list_versions(base: str) -> list[str]:
    """List the export versions (ten-digit directory names) under `base`, oldest first."""
    # Object stores list the name of a directory with a slash at the end.
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(base))
    return sorted(name for name in names if _VERSION.fullmatch(name))
