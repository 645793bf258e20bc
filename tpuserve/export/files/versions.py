"""The versions in a directory of exports, by their names."""

import re

import tensorflow as tf

# A Unix time in seconds. Other numbers may be versions for a server, and are none of ours.
_NAME = re.compile(r"[0-9]{10}")


def list_versions(base: str) -> list[str]:
    """The names in a directory that exports have, oldest first."""
    # Object stores list directories with a slash at the end.
    found = (name.rstrip("/") for name in tf.io.gfile.listdir(base))
    return sorted(name for name in found if _NAME.fullmatch(name))
