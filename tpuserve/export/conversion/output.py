"""Writes the directory of a converted SavedModel, which appears only when it is complete."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpuserve.errors import ExportError


def check_output(directory: Path, out: Path) -> None:
    """Check that the output may be written.

    Raises:
      ExportError: The output exists, or is the input or inside of it.
    """
    source, target = directory.resolve(), out.resolve()
    if target == source or source in target.parents:
        raise ExportError(
            f"{out} is inside of {directory}, which is read. Write to a directory beside it."
        )
    if out.is_file() or out.is_symlink() or (out.exists() and any(out.iterdir())):
        raise ExportError(f"{out} exists already. Give a new directory, or remove it.")


@contextmanager
def write_whole(out: Path) -> Iterator[Path]:
    """Yield a temporary directory beside `out`, and rename it to `out` if the with block succeeds.

    Raises:
      ExportError: The file system refuses to write.
    """
    temporary = out.parent / f"temp-{uuid.uuid4().hex}"
    try:
        try:
            temporary.mkdir(parents=True)
            yield temporary
            # An empty directory may be replaced; os.rename refuses any other.
            os.rename(temporary, out)
        finally:
            if temporary.exists():
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise ExportError(
            f"{out} cannot be written: {error.strerror or error}. Give a directory that this user "
            f"can write, on a disk with room for the model."
        ) from error


def copy_files(source: Path, target: Path, files: list[Path]) -> None:
    """Copy files of a directory to the same relative paths in another directory."""
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
