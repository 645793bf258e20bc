"""NameStatus and NameClassification: whether a name that an old program uses still exists."""

from dataclasses import dataclass
from enum import StrEnum


class NameStatus(StrEnum):
    """The availability of a name that a program uses.

    Attributes:
      SUPPLIED: the installed version of TensorFlow, Python or NumPy lacks the name, but tpuserve
        supplies it.
      GONE: an earlier version of TensorFlow, Python or NumPy had the name, but the installed
        version lacks it.
    """

    WORKS = "works"
    SUPPLIED = "supplied"
    GONE = "gone"
    UNKNOWN = "unknown"
    MISSING = "missing"

    @property
    def runs(self) -> bool:
        """Whether TensorFlow or tpuserve defines the name, so that programs can use it."""
        return self in (NameStatus.WORKS, NameStatus.SUPPLIED)


@dataclass(frozen=True)
class NameClassification:
    """The availability of a name that a program uses, with an explanation for the user.

    Attributes:
      says: an explanation: where the name is defined, what replaces it, or which similar names
        exist. It may be empty.
    """

    kind: NameStatus
    says: str = ""


WORKS = NameClassification(NameStatus.WORKS)
