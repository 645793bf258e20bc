"""Reads and writes progress files, which say how far an incomplete output file is written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuserve.prediction.batch import Position


@dataclass(frozen=True)
class Progress:
    """The position up to which an output file is written. An interrupted run continues there.

    Attributes:
      size: the size of `file` in bytes when it had the outputs of the records before `position`,
        and no others.
    """

    position: Position
    file: Path
    size: int

    def write(self, path: Path, input_state: Sequence[int]) -> None:
        """Write a progress file.

        Args:
          input_state: the size of the input file in bytes, and its modification time in
            nanoseconds.
        """
        entries = {
            "input-state": list(input_state),
            "records": self.position.records,
            "record-bytes": self.position.size,
            "file": self.file.name,
            "file-bytes": self.size,
        }
        path.write_text(json.dumps(entries) + "\n")


def read_progress(path: Path, input_state: Sequence[int]) -> Progress | None:
    """Read a progress file.

    Args:
      input_state: the present size of the input file in bytes, and its modification time in
        nanoseconds.

    Returns:
      The progress. None if a run cannot continue: the progress file is missing or damaged, the
      input file has changed, or `Progress.file` is missing or shorter than `Progress.size`.
    """
    try:
        entries: Any = json.loads(path.read_bytes())
        position = Position(int(entries["records"]), int(entries["record-bytes"]))
        progress = Progress(position, path.with_name(entries["file"]), int(entries["file-bytes"]))
        is_whole = progress.file.stat().st_size >= progress.size
        is_same_input = entries["input-state"] == list(input_state)
    except (OSError, ValueError, TypeError, LookupError):
        return None
    return progress if is_whole and is_same_input else None
