"""Manages the output directory of a batch prediction, so that an interrupted run can continue.

The directory has one output file for each input file, and a file `predict.json`, which describes
the run: its model, inputs and settings.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tpuserve.errors import Code, CodedError
from tpuserve.files.file_listing import list_files
from tpuserve.files.file_lock import lock_file
from tpuserve.prediction.formats import InputFormat, OutputFormat
from tpuserve.prediction.progress import Progress, read_progress

DESCRIPTION_FILE = "predict.json"

_TEMPORARY_PREFIX = ".temp-"
_PROGRESS_SUFFIX = ".progress"
# A key in the description of a run. The value has the size and modification time of each input
# file, to find out whether the file has changed since an earlier run.
_STATES = "input-states"
# Files of a SavedModel whose content goes into the digest of the model. The large files with the
# variables do not: variables.index has a checksum of each variable.
_IDENTIFYING_FILES = ("saved_model.pb", "saved_model.pbtxt", "variables.index")


def describe_run(
    model: Path,
    inputs: Sequence[str],
    signature_name: str,
    tags: str,
    input_format: InputFormat | None,
    output_format: OutputFormat,
) -> dict[str, Any]:
    """Return a description of everything that determines the output files of a run, as JSON data.

    A run may only continue the output files of a run with the same description.

    Args:
      tags: the tags of the metagraph, separated by commas; empty for the default metagraph.
    """
    statuses = list(map(os.stat, inputs))
    return {
        "model": _digest(model),
        "signature": signature_name,
        "tags": tags,
        "input-format": input_format.value if input_format else "",
        "output-format": output_format.value,
        "inputs": list(map(os.path.abspath, inputs)),
        _STATES: [[status.st_size, status.st_mtime_ns] for status in statuses],
    }


class OutputDirectory:
    """The output directory of a batch prediction, which is locked inside of a `with` block.

    If no output file is complete at the end of the block, and no incomplete one can be continued by
    a later run, the files of this run are removed.

    Args:
      suffix: the suffix of the names of output files, such as ".parquet".
    """

    def __init__(self, path: Path, run: Mapping[str, Any], suffix: str) -> None:
        self._path = path
        self._run = run
        self._suffix = suffix
        self._is_created = False
        self._lock = -1
        self._check()

    def __enter__(self) -> "OutputDirectory":
        self._is_created = not self._path.exists()
        self._path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._acquire_lock()
            # Check the files again under the lock: another run may have written to the directory
            # since this object was created.
            self._check()
            self._remove_temporary_files()
            with self._replace(self._path / DESCRIPTION_FILE) as temporary:
                temporary.write_text(json.dumps(self._run, indent=1) + "\n")
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove_temporary_files()
        numbers = range(len(self._run["inputs"]))
        if not any(self.is_complete(number) or self.progress(number) for number in numbers):
            (self._path / DESCRIPTION_FILE).unlink(missing_ok=True)
            if self._is_created:
                self._path.rmdir()
        os.close(self._lock)

    def is_complete(self, number: int) -> bool:
        """Return whether the output file of an input file is complete.

        Args:
          number: the position of the input file in the run's list, from 0.
        """
        return self.file(number).exists()

    def file(self, number: int) -> Path:
        """Return the path of the output file that belongs to an input file.

        Args:
          number: the position of the input file in the run's list, from 0.
        """
        count = len(self._run["inputs"])
        return self._path / f"predictions-{number:05}-of-{count:05}{self._suffix}"

    @contextlib.contextmanager
    def write(self, number: int) -> Iterator[Path]:
        """Yield a temporary path for an output file; rename the file when the `with` block ends.

        If the block raises an error, the file keeps its temporary name.

        Args:
          number: the position of the input file in the run's list, from 0.
        """
        path = self.file(number)
        with self._replace(path) as temporary:
            yield temporary
        for rest in self._path.glob(f"{_temporary(path).name}*"):
            rest.unlink()

    def progress(self, number: int) -> Progress | None:
        """Return the saved progress of an incomplete output file, from which a run can continue.

        Args:
          number: the position of the input file in the run's list, from 0.

        Returns:
          The progress; None if the output file is complete or must be written from its beginning.
        """
        if self.is_complete(number):
            return None
        return read_progress(self._progress_file(number), self._run[_STATES][number])

    def save_progress(self, number: int, progress: Progress) -> None:
        """Write the progress file of an incomplete output file to the disk.

        Args:
          number: the position of the input file in the run's list, from 0. Each input file has one
            output file.
        """
        with self._replace(self._progress_file(number)) as temporary:
            progress.write(temporary, self._run[_STATES][number])

    def _progress_file(self, number: int) -> Path:
        path = _temporary(self.file(number))
        return path.with_name(path.name + _PROGRESS_SUFFIX)

    @contextlib.contextmanager
    def _replace(self, path: Path) -> Iterator[Path]:
        temporary = _temporary(path)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        os.fsync(self._lock)

    def _check(self) -> None:
        if not self._path.exists():
            return
        names = {path.name for path in self._path.iterdir()}
        others = sorted(name for name in names if not name.startswith(_TEMPORARY_PREFIX))
        if not others:
            return
        if DESCRIPTION_FILE not in others:
            raise CodedError(
                f"--outputs={self._path} has files such as {others[0]}, and no {DESCRIPTION_FILE} "
                f"of a batch prediction. Give a directory that is empty or does not exist.",
                Code.FAILED_PRECONDITION,
            )
        try:
            other: Any = json.loads((self._path / DESCRIPTION_FILE).read_bytes())
        except ValueError:
            other = None
        if not isinstance(other, dict):
            other = {}
        differences = [
            name
            for name, value in self._run.items()
            if name != _STATES and other.get(name) != value
        ]
        earlier_states = other.get(_STATES)
        if not isinstance(earlier_states, list) or len(earlier_states) != len(self._run[_STATES]):
            differences.append(_STATES)
        if differences:
            raise CodedError(
                f"--outputs={self._path} has the predictions of another run, which differs in: "
                f"{', '.join(differences)}. Give another directory, or remove this one.",
                Code.FAILED_PRECONDITION,
            )

        states = zip(self._run["inputs"], self._run[_STATES], other[_STATES], strict=True)
        for number, (path, state, earlier_state) in enumerate(states):
            if state != earlier_state and self.is_complete(number):
                raise CodedError(
                    f"{path} has changed since {self.file(number)} was predicted from it. Give "
                    f"another --outputs directory, or remove the output file.",
                    Code.FAILED_PRECONDITION,
                )

    def _acquire_lock(self) -> None:
        try:
            # Ignore the result: `lock_file` returns False if the file system has no locks. The run
            # then continues without a lock.
            lock_file(self._lock)
        except BlockingIOError as error:
            raise CodedError(
                f"--outputs={self._path} is in use by another process that predicts. Wait for "
                f"its end, or give another directory.",
                Code.FAILED_PRECONDITION,
            ) from error

    def _remove_temporary_files(self) -> None:
        # Keep the files that this run can continue. Without a `predict.json`, which describes the
        # run that wrote them, keep none: they may be of another run.
        is_described = (self._path / DESCRIPTION_FILE).exists()
        numbers = range(len(self._run["inputs"]) if is_described else 0)
        unfinished = tuple(
            _temporary(self.file(number)).name for number in numbers if self.progress(number)
        )
        for path in self._path.glob(f"{_TEMPORARY_PREFIX}*"):
            if not path.name.startswith(unfinished):
                path.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{_TEMPORARY_PREFIX}{path.name}")


def _digest(model: Path) -> str:
    """Return a SHA-256 digest that identifies the SavedModel in a directory."""
    digest = hashlib.sha256()
    for path in list_files(model):
        digest.update(f"{path.relative_to(model)} {path.stat().st_size}\n".encode())
        if path.name in _IDENTIFYING_FILES:
            digest.update(path.read_bytes())
    return digest.hexdigest()
