"""Reads `op_families.txt`, which lists the ops of TensorFlow that untrusted models may contain."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

PATH = Path(__file__).with_name("op_families.txt")
# The name of the family into which `tools.op_families` writes ops of TensorFlow that nobody has
# reviewed yet.
NOT_REVIEWED = "not reviewed"

_HEADING = re.compile(r"\[(\w+): (.+)\]")
_PATH_INPUT = re.compile(r"path in input (\d)")


class Permission(Enum):
    """The permission of untrusted models to contain an op, and to run it."""

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
    """A group of TensorFlow's ops of the same kind, such as ops on arrays."""

    permission: Permission
    name: str

    @property
    def path_input(self) -> int:
        """The position of the input that is the path of a file; only for Permission.FILE."""
        match = _PATH_INPUT.fullmatch(self.name)
        assert match is not None, f"the family {self.name!r} names no path input"
        return int(match[1])


# The family of all ops that `op_families.txt` does not list, such as ops of custom libraries or of
# later TensorFlow versions. They are refused.
UNKNOWN = OpFamily(Permission.REFUSED, "unknown")


@cache
def op_families() -> Mapping[str, OpFamily]:
    """Return the family of each op that `op_families.txt` lists: op type → family."""
    families: dict[str, OpFamily] = {}
    for family, ops in parse_families(PATH.read_text(encoding="utf-8")).items():
        families.update(dict.fromkeys(ops, family))
    return families


def parse_families(text: str) -> dict[OpFamily, list[str]]:
    """Parse the content of `op_families.txt`."""
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
