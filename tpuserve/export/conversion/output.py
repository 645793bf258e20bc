"""Writes a converted SavedModel to a temporary directory, and renames it when it is complete."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from tpuserve.errors import ExportError
from tpuserve.export.files import directory_lock


def check_output(directory: Path, out: Path) -> None:
    """Check that a conversion is allowed to write its output directory."""
    source, target = directory.resolve(), out.resolve()
    if target == source:
        raise ExportError(f"{out} is the model to convert. Write to a directory beside it.")
    if source in target.parents:
        raise ExportError(
            f"{out} is inside of {directory}, which is read. Write to a directory beside it."
        )
    if out.is_file() or out.is_symlink() or (out.exists() and any(out.iterdir())):
        raise ExportError(f"{out} exists already. Give a new directory, or remove it.")


@contextmanager
def write_whole(out: Path) -> Iterator[Path]:
    """Yield a temporary directory beside `out`, and rename it to `out` if the with block succeeds.

    A process that is killed leaves the temporary directory. The next export or conversion into the
    same parent directory removes it.
    """
    try:
        with (
            _create_parents(out),
            directory_lock.temporary_directory(str(out.parent)) as temporary,
        ):
            yield Path(temporary)
            # os.rename replaces an empty directory, and raises an error for any other, so that no
            # output of another process is overwritten.
            os.rename(temporary, out)
    except OSError as error:
        raise _make_error(out, error.strerror or str(error)) from error
    except tf.errors.OpError as error:
        # TensorFlow raises this error while it writes the warm-up file. If the error names the
        # temporary directory, the file system refused to write. Raise any other error unchanged.
        if directory_lock.PREFIX not in error.message:
            raise
        raise _make_error(out, error.message) from error


def _make_error(out: Path, reason: str) -> ExportError:
    return ExportError(
        f"{out} cannot be written: {reason}. Give a directory that this user can write, on a disk "
        f"with room for the model."
    )


@contextmanager
def _create_parents(path: Path) -> Iterator[None]:
    """Create the missing directories above a path; remove them if the with block raises."""
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in missing:
            # Keep a directory that is not empty: another process has written into it in the
            # meantime.
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


@contextmanager
def copying(source: Path, target: Path, files: Sequence[Path]) -> Iterator[None]:
    """Copy files in a background thread while a with block runs.

    The end of the block waits until all files are copied.
    """
    with ThreadPoolExecutor(max_workers=1) as executor:
        copies = executor.submit(_copy_files, source, target, files)
        yield
        copies.result()


def _copy_files(source: Path, target: Path, files: Sequence[Path]) -> None:
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
