"""Defines the result of one check of `tpuserve doctor`."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """The severity of a finding of `tpuserve doctor`."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One result of a check of `tpuserve doctor`.

    Attributes:
      check: the name of the check, such as "packages".
      status: OK if there is nothing to do, NOTE if the user may want to change something, PROBLEM
        if a run on a TPU would fail.
      advice: what to do, one line each; empty if there is nothing to do.
    """

    check: str
    status: Status
    message: str
    advice: tuple[str, ...] = ()


def ok(check: str, message: str) -> Finding:
    """Create a finding with the status OK: there is nothing to do."""
    return Finding(check, Status.OK, message)


def note(check: str, message: str, *advice: str) -> Finding:
    """Create a finding with the status NOTE: the user may want to change something."""
    return Finding(check, Status.NOTE, message, advice)


def problem(check: str, message: str, *advice: str) -> Finding:
    """Create a finding with the status PROBLEM: a run on a TPU would fail."""
    return Finding(check, Status.PROBLEM, message, advice)
