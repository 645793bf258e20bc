"""Defines the lines of a request log in JSON, which the server writes and `predict` reads."""

from collections.abc import Mapping
from typing import Any, TypedDict


class LogLine(TypedDict):
    """A row of a logged request and of its answer.

    Attributes:
      time: when the request was answered, in ISO 8601.
      row: the index of the row in its request; None if the request has no rows.
      inputs: input alias → value of the row, in the form of a line of `tpuserve predict`.
      outputs: output alias → value of the row.
    """

    time: str
    model: str
    version: int
    signature_name: str
    row: int | None
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


def is_log_line(value: Mapping[str, Any]) -> bool:
    """Return whether a line's JSON object is of a request log, and not an object of inputs."""
    return value.keys() == LogLine.__annotations__.keys()
