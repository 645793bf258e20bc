"""The result of one check of the machine."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """The severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """What a check has found.

    Attributes:
      check: the name of the check, such as "packages".
      status: NOTE if the user may want to change something, PROBLEM if a TPU run would fail.
      message: what was found, one line.
      advice: what to do, one line each; empty if nothing is to do.
    """

    check: str
    status: Status
    message: str
    advice: tuple[str, ...] = ()


def ok(check: str, message: str) -> Finding:
    """Return a finding about which nothing is to do."""
    return Finding(check, Status.OK, message)


def note(check: str, message: str, *advice: str) -> Finding:
    """Return a finding that the user may want to act on, but that makes no TPU run fail."""
    return Finding(check, Status.NOTE, message, advice)


def problem(check: str, message: str, *advice: str) -> Finding:
    """Return a finding because of which a run on a TPU would fail."""
    return Finding(check, Status.PROBLEM, message, advice)
