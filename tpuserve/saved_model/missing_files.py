"""The files that a graph needs and that do not lie beside it."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import proto_file

VARIABLES = "variables"
ASSETS = "assets"

_INDEX_NAME = "variables.index"
_SHARD_NAME = re.compile(r"variables\.data-([0-9]{5})-of-([0-9]{5})")
_FILES_NAMED = 3


def describe_missing_files(directory: Path, metagraphs: Sequence[pb.MetaGraphDef]) -> list[str]:
    """A sentence on missing files of variables, and one on missing assets; none if all are there.

    Whether a file is whole is not looked at.

    Raises:
      OSError: variables/ cannot be listed.
    """
    found = []
    if any(each.saver_def.restore_op_name for each in metagraphs):
        found += _problem(directory, _missing_variables(directory))
    names = {f"{ASSETS}/{name}" for each in metagraphs for name in proto_file.asset_names(each)}
    found += _problem(
        directory,
        # Not of pathlib: a damaged name may be no path at all, which isfile takes for missing.
        [name for name in sorted(names) if not os.path.isfile(os.path.join(directory, name))],
    )
    return found


def _missing_variables(directory: Path) -> list[str]:
    place = directory / VARIABLES
    if not place.is_dir():
        return [f"{VARIABLES}/"]
    names = {each.name for each in place.iterdir()}
    # The names of the data files say how many there are to be.
    counts = {int(match[2]) for match in map(_SHARD_NAME.fullmatch, names) if match} or {1}
    wanted = [_INDEX_NAME]
    wanted += [f"variables.data-{n:05d}-of-{count:05d}" for count in counts for n in range(count)]
    return [f"{VARIABLES}/{name}" for name in wanted if name not in names]


def _problem(directory: Path, missing: list[str]) -> list[str]:
    if not missing:
        return []
    shown = ", ".join(missing[:_FILES_NAMED])
    if len(missing) > _FILES_NAMED:
        shown += f" and {len(missing) - _FILES_NAMED} other files"
    return [
        f"{shown} {'is' if len(missing) == 1 else 'are'} missing in {directory}, and the model "
        f"cannot run without. Copy the whole directory, or export the model again."
    ]
