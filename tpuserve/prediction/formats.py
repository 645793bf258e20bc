"""Defines the formats of the input and output files of a batch prediction.

This module does not import TensorFlow, so that the command line is parsed without its slow import.
"""

import glob
import importlib.util
import os
from collections.abc import Sequence
from enum import Enum

from tpuserve.errors import ExtraNotInstalled, NotFound

_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_GZIP_SUFFIX = ".gz"


class InputFormat(Enum):
    """The format of an input file of a batch prediction."""

    EXAMPLES = "examples"
    """A TFRecord file of serialised tf.train.Example messages, or of strings for a model with one
    string input."""
    REQUESTS = "requests"
    """A TFRecord file of PredictRequest messages."""
    PREDICTION_LOGS = "prediction_logs"
    """A TFRecord file of PredictionLog messages, such as a request log or a warm-up file."""
    JSON_LINES = "jsonl"
    """A text file with the inputs of one row as JSON in each line."""


REQUEST_FORMATS = frozenset({InputFormat.REQUESTS, InputFormat.PREDICTION_LOGS})
"""The formats whose records name a signature and a version."""


class OutputFormat(Enum):
    """The format of an output file of a batch prediction."""

    PREDICTION_LOGS = "prediction_logs"
    """A TFRecord file with a PredictionLog of the inputs and the outputs of each record."""
    JSON_LINES = "jsonl"
    """A text file with the outputs of one row as a JSON object in each line."""
    PARQUET = "parquet"
    """A Parquet file with a column for each output."""

    @property
    def suffix(self) -> str:
        """The suffix of the names of files in this format, such as ".parquet"."""
        return {"prediction_logs": ".tfrecord", "jsonl": ".jsonl", "parquet": ".parquet"}[
            self.value
        ]

    def require_extra(self) -> None:
        """Check that the package that writes this format is installed."""
        if self is OutputFormat.PARQUET and importlib.util.find_spec("pyarrow") is None:
            raise ExtraNotInstalled(
                "--output-format=parquet needs the package pyarrow, which is not installed. Run: "
                'pip install ".[parquet]"'
            )


def default_input_format(path: str) -> InputFormat:
    """Return the format of an input file by the suffix of its name."""
    name = path.removesuffix(_GZIP_SUFFIX)
    return InputFormat.JSON_LINES if name.endswith(_JSON_SUFFIXES) else InputFormat.EXAMPLES


def compression_type(path: str) -> str:
    """Return tf.data's compression type for the suffix of a file: "GZIP" for ".gz", else ""."""
    return "GZIP" if path.endswith(_GZIP_SUFFIX) else ""


def match_files(patterns: Sequence[str]) -> list[str]:
    """Return the files that patterns match, sorted and without duplicates.

    Args:
      patterns: paths, in which `*`, `?`, `[...]` and `**` are wildcards. The path of a file that
        exists matches this file alone, also if the path has such characters.
    """
    paths: set[str] = set()
    for pattern in patterns:
        candidates = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)
        # Directories match too, and broken links. Keep pipes, which are no regular files.
        matches = [path for path in candidates if os.path.exists(path) and not os.path.isdir(path)]
        if not matches:
            raise NotFound(
                f"--inputs {pattern!r} matches no file. Give a path or a pattern of files on this "
                f"machine."
            )
        paths.update(matches)
    return sorted(paths)
