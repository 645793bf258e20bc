"""The result of a conversion, as data."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FRONT, BEHIND = "in front", "behind"
"""Where the host runs an op: before the TPU, or after it."""


@dataclass(frozen=True)
class HostOp:
    """An op that stays on the host.

    Attributes:
      op: The op type.
      node: Name of the node.
      place: `FRONT` or `BEHIND`; empty for an op that is left out.
      reason: Why the op stays on the host.
    """

    op: str
    node: str
    place: str
    reason: str


@dataclass(frozen=True)
class ConvertedSignature:
    """How the nodes of one signature are divided between the TPU and the host.

    Attributes:
      name: Name of the signature.
      num_tpu_ops: Number of nodes on the TPU, without constants and reads of variables.
      num_host_ops: Number of nodes on the host, without constants and reads of variables.
      host_ops: The nodes that only the host can run. Any other node on the host is there because a
        node of `host_ops` in front of the TPU depends on it, because it depends on a node of
        `host_ops` behind the TPU, or because it is outside of the function that the user chose.
      functions: Names of the TPU computations; empty if the whole signature stays on the host.
    """

    name: str
    num_tpu_ops: int
    num_host_ops: int
    host_ops: tuple[HostOp, ...]
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion.

    Attributes:
      directory: The SavedModel that was read.
      out: The SavedModel that was written.
      signatures: The converted signatures, sorted by name.
      notes: Choices that the conversion made, one sentence each.
    """

    directory: Path
    out: Path
    signatures: tuple[ConvertedSignature, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        data = dataclasses.asdict(self)
        return {**data, "directory": str(self.directory), "out": str(self.out)}
