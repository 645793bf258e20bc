"""Builds the `tpuserve convert` command that error messages recommend.

The messages are about SavedModels without a TPU metagraph.
"""

import shlex
from collections.abc import Collection
from pathlib import Path

from tpuserve import tags as tag_sets
from tpuserve.tags import TagSet


def convert_command(directory: Path, available: Collection[TagSet]) -> str:
    """Return the shell command that adds a {serve, tpu} metagraph to a SavedModel."""
    command = f"tpuserve convert {shlex.quote(str(directory))} {shlex.quote(str(_out(directory)))}"
    if tag_sets.SERVE in available or not available:
        return command
    tags = min(available, key=sorted)
    return f"{command} --tags {shlex.quote(','.join(sorted(tags)))}"


def _out(directory: Path) -> Path:
    """Return a directory for the converted SavedModel: models/half-tpu/1 for models/half/1."""
    if directory.name.isdecimal() and directory.parent.name:
        base = directory.parent
        return base.with_name(f"{base.name}-tpu") / directory.name
    return directory.with_name(f"{directory.name or 'model'}-tpu")
