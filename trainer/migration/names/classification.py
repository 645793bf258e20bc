"""What is known of a name: it works, we supply it, it is gone, or nobody knows it."""

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What becomes of a name that a program says.

    Attributes:
      WORKS: TensorFlow has it.
      SUPPLIED: it works because tpuserve supplies it.
      GONE: it was there once.
      UNKNOWN: nobody knows it.
      MISSING: a module that is not installed.
    """

    WORKS = "works"
    SUPPLIED = "supplied"
    GONE = "gone"
    UNKNOWN = "unknown"
    MISSING = "missing"

    @property
    def runs(self) -> bool:
        """Whether a program that says such a name can run."""
        return self in (Kind.WORKS, Kind.SUPPLIED)


@dataclass(frozen=True)
class Verdict:
    """What becomes of one name.

    Attributes:
      kind: which of the five.
      says: who supplies it, what replaces it, or which names come near; empty where it works.
    """

    kind: Kind
    says: str = ""


WORKS = Verdict(Kind.WORKS)
