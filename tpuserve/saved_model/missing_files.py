"""Finds missing and truncated files of a SavedModel, for example after an incomplete copy."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import proto_file, variables_index

VARIABLES = "variables"
ASSETS = "assets"

_INDEX_NAME = "variables.index"
_SHARD_NAME = re.compile(r"variables\.data-([0-9]{5})-of-([0-9]{5})")
# The largest number of missing files that an error message lists by name.
_MAX_NAMED = 3
_COPY_AGAIN = "Copy the whole directory, or export the model again."


def describe_missing_files(directory: Path, metagraphs: Sequence[pb.MetaGraphDef]) -> list[str]:
    """Describe missing or truncated files of a SavedModel's variables, and missing assets.

    Only the existence and size of the files are checked, and not their content.

    Returns:
      Sentences for the user. One sentence names the missing files of variables. If none is missing,
      there is one sentence for each truncated file, or one if variables.index is damaged. A last
      sentence names the missing assets. The list is empty if no problem was found.

    Raises:
      OSError: variables/ cannot be listed.
    """
    problems = []
    if any(metagraph.saver_def.restore_op_name for metagraph in metagraphs):
        missing = _missing_variables(directory)
        problems += _describe(directory, missing) or _describe_cut_variables(directory)
    names = {
        f"{ASSETS}/{name}" for metagraph in metagraphs for name in proto_file.asset_names(metagraph)
    }
    # Use os.path.isfile. It returns False for an invalid path, such as one with a zero byte in a
    # damaged SavedModel, for which Path.is_file may raise an error.
    missing = [name for name in sorted(names) if not os.path.isfile(os.path.join(directory, name))]
    return problems + _describe(directory, missing)


def _missing_variables(directory: Path) -> list[str]:
    variables = directory / VARIABLES
    if not variables.is_dir():
        return [f"{VARIABLES}/"]
    names = {path.name for path in variables.iterdir()}
    # Take the expected number of data files from the names of the data files that exist:
    # variables.data-00000-of-00002 is one of 2 files.
    counts = {int(match[2]) for match in map(_SHARD_NAME.fullmatch, names) if match} or {1}
    expected = [_INDEX_NAME]
    expected += [f"variables.data-{n:05d}-of-{count:05d}" for count in counts for n in range(count)]
    return [f"{VARIABLES}/{name}" for name in expected if name not in names]


def _describe_cut_variables(directory: Path) -> list[str]:
    """Describe truncated files of variables: those that are shorter than variables.index says."""
    index = directory / VARIABLES / _INDEX_NAME
    try:
        sizes = variables_index.shard_sizes(index.read_bytes())
    except ValueError as error:
        return [f"{VARIABLES}/{_INDEX_NAME} in {directory} cannot be read: {error}. {_COPY_AGAIN}"]
    problems = []
    for path in sorted(index.parent.iterdir()):
        match = _SHARD_NAME.fullmatch(path.name)
        needed = sizes.get(int(match[1]), 0) if match else 0
        num_bytes = path.stat().st_size if needed else 0
        if num_bytes < needed:
            problems.append(
                f"{VARIABLES}/{path.name} in {directory} has {num_bytes} bytes of {needed}: it was "
                f"cut. {_COPY_AGAIN}"
            )
    return problems


def _describe(directory: Path, missing: list[str]) -> list[str]:
    if not missing:
        return []
    shown = ", ".join(missing[:_MAX_NAMED])
    if len(missing) > _MAX_NAMED:
        shown += f" and {len(missing) - _MAX_NAMED} other files"
    return [
        f"{shown} {'is' if len(missing) == 1 else 'are'} missing in {directory}, and the model "
        f"cannot run without. {_COPY_AGAIN}"
    ]
