"""Explains why the path of a model cannot be served, and names the command that would do."""

import difflib
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from os.path import isdir, isfile, islink
from pathlib import Path

from server.config.model_paths import default_name
from server.models.repository import version_number
from server.storage.keras_files import SUFFIX
from tpuserve.saved_model import nearby, proto_file

# The limits of the search for models below a path, so that an error does not take long.
_MAX_DIRECTORIES, _MAX_ENTRIES, _MAX_NAMED = 500, 500, 10
_SERVED = "a SavedModel, a directory of its versions, or a .keras file"


def explain_missing_model(path: Path) -> str:
    """Return what is at a path that has no version of a model, and which command would serve it."""
    try:
        if path.is_dir():
            return _explain_directory(path)
        return _explain_file(path) if path.exists() else _explain_absence(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}. Give a path that the server may read."


def _explain_absence(path: Path) -> str:
    parent = path.parent
    names = [entry.name for entry in _entries(parent)] if parent.is_dir() else []
    similar = difflib.get_close_matches(path.name, names, n=1)
    if similar:
        return f"there is no {path}. Did you mean: {_serve([parent / similar[0]])}"
    return f"there is no {path}. Give the path of {_SERVED}, as: tpuserve serve /models/half"


def _explain_file(path: Path) -> str:
    if path.suffix in nearby.KERAS_SUFFIXES:
        return nearby.describe_keras_file(path)
    if path.name in proto_file.NAMES:
        return f"{path} is a part of a SavedModel. Run: {_serve([path.parent])}"
    if path.suffix == ".tflite":
        version = shlex.quote(str(path.with_suffix("") / "1"))
        return (
            f"{path} is a model of TensorFlow Lite, which is served from a version directory. Run: "
            f"mkdir -p {version} && cp {shlex.quote(str(path))} {version}/model.tflite && "
            f"{_serve([path.with_suffix('')])} --prefer_tflite_model"
        )
    if path.suffix == ".pb":
        return (
            f"{path} is a graph without signatures. Import it, write a SavedModel of it with "
            f"tf.compat.v1.saved_model.simple_save, and run: tpuserve serve DIRECTORY"
        )
    return f"{path} is a file of another kind. Give {_SERVED}, as: tpuserve serve /models/half"


def _explain_directory(path: Path) -> str:
    entries = sorted(path.iterdir())[:_MAX_ENTRIES]
    models = list(islice(_find_models(path), _MAX_NAMED + 1))
    if models:
        more = " ..." if len(models) > _MAX_NAMED else ""
        return f"no version of a model in {path}. Run: {_serve(models[:_MAX_NAMED])}{more}"
    for entry in entries:
        if entry.suffix in (*nearby.KERAS_SUFFIXES, ".tflite", ".pb"):
            return f"no version of a model in {path}. {_explain_file(entry)}"
    if any(entry.name == "checkpoint" or entry.suffix == ".index" for entry in entries):
        return (
            f"{path} has checkpoints, which hold variables without a graph. Export the model with "
            f"export_saved_model or tf.saved_model.save, and run: tpuserve serve DIRECTORY"
        )
    names = ", ".join(entry.name for entry in entries[:_MAX_NAMED])
    found = f"has no model, but {names}" if names else "is empty"
    return f"{path} {found}. Give the path of {_SERVED}, as: tpuserve serve /models/half"


def _find_models(directory: Path) -> Iterator[Path]:
    """Yield the paths at or below a directory that `tpuserve serve` would serve, nearest first."""
    directories = deque([directory])
    for _ in range(_MAX_DIRECTORIES):
        if not directories:
            return
        parent = directories.popleft()
        entries = list(_entries(parent))
        is_version = any(entry.name in proto_file.NAMES for entry in entries)
        if is_version or any(map(_is_version, entries)):
            yield parent
            continue
        # os.path takes what cannot be examined for absent, and pathlib raises an error.
        yield from (entry for entry in entries if entry.suffix == SUFFIX and isfile(entry))
        directories += (entry for entry in entries if isdir(entry) and not islink(entry))


def _is_version(entry: Path) -> bool:
    return version_number(entry.name) is not None and any(
        isfile(entry / name) for name in proto_file.NAMES
    )


def _entries(directory: Path) -> Iterator[Path]:
    try:
        return islice(sorted(directory.iterdir()), _MAX_ENTRIES)
    except OSError:
        return iter(())


def _serve(paths: Sequence[Path]) -> str:
    """Return the command that serves paths, with names for those whose names would be equal."""
    names = [default_name(str(path)) for path in paths]
    arguments = [
        f"{path.parent.name}-{name}={path}" if not name or names.count(name) > 1 else str(path)
        for name, path in zip(names, paths, strict=True)
    ]
    return shlex.join(["tpuserve", "serve", *arguments])
