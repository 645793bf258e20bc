"""Writes the results of a comparison to files, from which an interrupted comparison continues."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tpuserve.compare.requests import Request
from tpuserve.compare.result import Result
from tpuserve.errors import Code, CodedError
from tpuserve.files.file_lock import lock_file
from tpuserve.saved_model.tfrecord import FRAME_BYTES, DamagedRecord, frame_record, read_records

RESULTS_FILE = "results.jsonl"
DIFFERING_FILE = "differing.tfrecord"
REPORT_FILE = "report.json"

_SOURCE = "source"


class OutputFiles(AbstractContextManager["OutputFiles"]):
    """The directory of a comparison's results; opened in a with block, and then locked.

    `results.jsonl` describes the comparison in its first line, and has a line for each request.
    `differing.tfrecord` has the PredictionLogs of the requests whose answers differ.

    Args:
      description: what is compared; a run continues another with the same description. Its
        "source" is a list of (file, size in bytes): the files may have grown, and others may
        follow.
    """

    def __init__(self, directory: Path, description: Mapping[str, Any]) -> None:
        self._directory = directory
        self._description = json.loads(json.dumps(description))

    def __enter__(self) -> "OutputFiles":
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._directory, os.O_RDONLY)
        try:
            lock_file(self._lock)
            self._check()
            self._results = open(self._directory / RESULTS_FILE, "ab+", buffering=0)
            self._differing = open(self._directory / DIFFERING_FILE, "ab", buffering=0)
        except BlockingIOError as error:
            os.close(self._lock)
            raise self._refused("is in use by another process that compares") from error
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._results.close()
        self._differing.close()
        os.close(self._lock)

    def read_results(self) -> Iterator[Result]:
        """Yield the results of an earlier run, and remove what it has written incompletely."""
        num_differing = 0
        self._results.seek(0)
        size = 0
        with open(self._directory / RESULTS_FILE, "rb") as lines:
            for line in lines:
                result = _parse_result(line) if size else None
                if not line.endswith(b"\n") or (size and result is None):
                    break
                size += len(line)
                if result is not None:
                    num_differing += bool(result.difference)
                    yield result
        self._results.truncate(size)
        if not size:
            self._write_line(self._description)
        self._differing.truncate(self._size_of_records(num_differing))

    def write(self, result: Result, request: Request) -> None:
        """Write the result of a request, and the request if the answers differ."""
        if result.difference:
            self._differing.write(frame_record(request.record))
        self._write_line(result.to_dict())

    def write_report(self, report: Mapping[str, Any]) -> None:
        """Write the report of the whole comparison."""
        temporary = self._directory / f".{REPORT_FILE}"
        temporary.write_text(json.dumps(report, indent=2) + "\n")
        temporary.replace(self._directory / REPORT_FILE)

    def _write_line(self, data: Mapping[str, Any]) -> None:
        self._results.write(json.dumps(data).encode() + b"\n")

    def _size_of_records(self, count: int) -> int:
        """Return the size of the first records of the file of requests that differ."""
        size = 0
        records = read_records(self._directory / DIFFERING_FILE)
        for _ in range(count):
            try:
                size += len(next(records)) + FRAME_BYTES
            except (DamagedRecord, StopIteration) as error:
                raise self._refused(f"has a damaged {DIFFERING_FILE}") from error
        return size

    def _check(self) -> None:
        path = self._directory / RESULTS_FILE
        if not path.exists():
            if any(self._directory.iterdir()):
                raise self._refused(f"has files, and no {RESULTS_FILE} of a comparison")
            return
        with open(path, "rb") as lines:
            first = next(lines, b"")
        try:
            earlier = json.loads(first) if first.endswith(b"\n") else self._description
            differing = [
                name
                for name, value in self._description.items()
                if value != earlier[name]
                and not (name == _SOURCE and _continues(value, earlier[name]))
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise self._refused(f"has a damaged {RESULTS_FILE}") from error
        if differing:
            raise self._refused(
                f"has the results of another comparison, which differs in: {', '.join(differing)}"
            )

    def _refused(self, reason: str) -> CodedError:
        return CodedError(
            f"--outputs={self._directory} {reason}. Give another directory, or remove this one.",
            Code.FAILED_PRECONDITION,
        )


def _parse_result(line: bytes) -> Result | None:
    """Return the result in a line; None if the line is damaged."""
    try:
        return Result.from_dict(json.loads(line))
    except (ValueError, KeyError, TypeError):
        return None


def _continues(files: list[tuple[str, int]], earlier: list[tuple[str, int]]) -> bool:
    """Return whether the files begin with all records of the earlier files."""
    return len(files) >= len(earlier) and all(
        path == old_path and size >= old_size
        for (path, size), (old_path, old_size) in zip(files, earlier, strict=False)
    )
