"""Explains in an error message why a path is not a SavedModel, and suggests a path nearby."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tpuserve.files import uris

# The suffixes of the files in which Keras saves a model. If the path is such a file, the error
# message recommends `tpuserve export`, which makes a SavedModel of it.
KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")

# Limits of the search for a SavedModel near a path, so that an error message does not take long:
# the number of directory levels above the path, the number of entries of each directory, and the
# number of SavedModels that the message lists.
_MAX_PARENTS = 3
_MAX_SEARCHED = 200
_MAX_NAMED = 10


def why_not_found(directory: Path, names: Sequence[str]) -> str:
    """Return the error message for a path that is not a directory with a SavedModel.

    Args:
      names: the possible names of the graph's file, such as saved_model.pb. Messages use the first.
    """
    binary = names[0]
    if directory.is_file():
        return _describe_file(directory, names)
    if directory.exists() and not directory.is_dir():
        return f"{directory} is no directory. Name a directory that holds a {binary}."
    if not directory.is_dir():
        not_local = uris.why_not_local(directory)
        if not_local is not None:
            return not_local
        versions = _versions(directory.parent, names) if directory.parent.is_dir() else []
        if versions:
            return (
                f"no directory {directory}; found version directories {_list(versions)} beside it. "
                f"Name one of them: {versions[-1]}"
            )
        return f"no directory {directory}. Name a directory that holds a {binary}."
    if (directory / binary).is_dir():
        return (
            f"{directory / binary} is a directory. Name a directory that holds a file of "
            f"this name, as export_saved_model returns it."
        )
    shown = "the current directory" if directory == Path() else directory
    versions = _versions(directory, names)
    if versions:
        return (
            f"no {binary} in {shown}; found version directories {_list(versions)}. "
            f"Name one of them: {versions[-1]}"
        )
    parent = _parent(directory, names)
    if parent is not None:
        return f"no {binary} in {shown}, which is a part of the SavedModel {parent}. Name {parent}."
    inner = [version for child in _children(directory) for version in _versions(child, names)]
    if inner:
        numbers = ", ".join(str(version) for version in inner[:_MAX_NAMED])
        return f"no {binary} in {shown}; found the SavedModels {numbers}. Name one of them."
    saved_by_keras = [path for path in _entries(directory) if path.suffix in KERAS_SUFFIXES]
    if saved_by_keras:
        return f"no {binary} in {shown}; {describe_keras_file(saved_by_keras[0])}"
    return (
        f"no {binary} in {shown}. Name a directory that holds one, as "
        f"export_saved_model returns it."
    )


def newest_version(directory: Path, names: Sequence[str]) -> Path | None:
    """Return the newest version directory of a base path; None for another path."""
    if not directory.is_dir() or _is_saved_model(directory, names):
        return None
    versions = [path for path in _versions(directory, names) if path.name.isdecimal()]
    return versions[-1] if versions else None


def _describe_file(path: Path, names: Sequence[str]) -> str:
    if path.suffix in KERAS_SUFFIXES:
        return describe_keras_file(path)
    parent = _parent(path, names) or path.parent
    return f"{path} is a file. Name the directory that holds a {names[0]}, such as {parent}."


def describe_keras_file(path: Path) -> str:
    """Return a sentence that names the command with which a file of Keras becomes a SavedModel."""
    return (
        f"{path} is a file of Keras and no SavedModel. Make a SavedModel for CPU and TPU of "
        f"it: tpuserve export {path} {path.with_suffix('')}"
    )


def _parent(path: Path, names: Sequence[str]) -> Path | None:
    """Return the nearest directory above a path that is a SavedModel; None if there is none."""
    for parent in islice(path.absolute().parents, _MAX_PARENTS):
        if _is_saved_model(parent, names):
            return parent
    return None


def _versions(directory: Path, names: Sequence[str]) -> list[Path]:
    directories = [path for path in _entries(directory) if _is_saved_model(path, names)]
    # Sort by number, so that the error message suggests the newest version directory.
    return sorted(
        directories, key=lambda path: (int(path.name) if path.name.isdecimal() else -1, path.name)
    )


def _is_saved_model(directory: Path, names: Sequence[str]) -> bool:
    return any((directory / name).is_file() for name in names)


def _children(directory: Path) -> list[Path]:
    # Skip subdirectories that cannot be read. An error about them would confuse the user, who has
    # passed another path.
    return [
        path
        for path in _entries(directory)
        if path.is_dir() and not path.is_symlink() and _is_readable(path)
    ]


def _is_readable(directory: Path) -> bool:
    try:
        next(directory.iterdir(), None)
    except OSError:
        return False
    return True


def _entries(directory: Path) -> Iterator[Path]:
    return islice(sorted(directory.iterdir()), _MAX_SEARCHED)


def _list(versions: Sequence[Path]) -> str:
    shown = ", ".join(path.name for path in versions[:_MAX_NAMED])
    more = len(versions) - _MAX_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
