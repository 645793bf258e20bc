"""Reads `op_families.txt`, which records what each op of TensorFlow can do."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_name("op_families.txt")
# The family into which `tools.op_families` puts ops that are in no family yet.
NOT_REVIEWED = "not reviewed"

_HEADING = re.compile(r"\[(\w+): (.+)\]")
_PATH_INPUT = re.compile(r"path in input (\d)")


class Permission(Enum):
    """Whether a model that is not trusted may hold an op."""

    ALLOWED = "allowed"
    """The op only computes."""
    FILE = "file"
    """The op reads the file that an input names, which must be an asset of the model."""
    HELD = "held"
    """A graph may hold the op, but neither the load nor a request may run it."""
    REFUSED = "refused"
    """The op does more than compute, or nobody has reviewed it."""


@dataclass(frozen=True)
class OpFamily:
    """A group of ops that do the same kind of work.

    Attributes:
      permission: whether a model may hold the ops.
      name: what the ops work on, for error messages and reviewers.
    """

    permission: Permission
    name: str

    @property
    def path_input(self) -> int:
        """The position of the input that holds a file's path; only for permission FILE."""
        match = _PATH_INPUT.fullmatch(self.name)
        assert match is not None, f"the family {self.name!r} names no path input"
        return int(match[1])


# The family of ops that `op_families.txt` does not list, such as ops of custom libraries and of
# later TensorFlow versions.
UNKNOWN = OpFamily(Permission.REFUSED, "unknown")


@cache
def op_families() -> Mapping[str, OpFamily]:
    """Return the family of each reviewed op: op type → family."""
    families: dict[str, OpFamily] = {}
    for family, ops in parse_families(PATH.read_text(encoding="utf-8")).items():
        families.update(dict.fromkeys(ops, family))
    return families


def parse_families(text: str) -> dict[OpFamily, list[str]]:
    """Parse the content of `op_families.txt`.

    Returns:
      Family → op types, in the order of the file.
    """
    families: dict[OpFamily, list[str]] = {}
    ops: list[str] = []
    for line in text.splitlines():
        heading = _HEADING.fullmatch(line)
        if heading:
            family = OpFamily(Permission(heading[1]), heading[2])
            ops = families.setdefault(family, [])
        elif not line.startswith("#"):
            ops += line.split()
    return families
