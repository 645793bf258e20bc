"""The classification of a TensorFlow symbol or a module that an old program uses."""

from dataclasses import dataclass
from enum import Enum


class NameStatus(str, Enum):
    """The status of a name that a program uses.

    Attributes:
      WORKS: TensorFlow has the name.
      SUPPLIED: tpuserve supplies the name.
      GONE: an earlier version of TensorFlow or Python had the name, and the present one lacks it.
      UNKNOWN: no version of TensorFlow is known to have the name.
      MISSING: the name is a module that is not installed.
    """

    WORKS = "works"
    SUPPLIED = "supplied"
    GONE = "gone"
    UNKNOWN = "unknown"
    MISSING = "missing"

    @property
    def runs(self) -> bool:
        """Whether a program that uses the name can run: TensorFlow or tpuserve defines it."""
        return self in (NameStatus.WORKS, NameStatus.SUPPLIED)


@dataclass(frozen=True)
class Classification:
    """The status of a name, with an explanation.

    Attributes:
      kind: whether the name exists.
      says: an explanation: the module that supplies the name, its replacement, or similar names;
        may be empty.
    """

    kind: NameStatus
    says: str = ""


WORKS = Classification(NameStatus.WORKS)
