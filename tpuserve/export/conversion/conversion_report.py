"""Describes the result of a conversion: which ops run on the TPU and which on the host."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FRONT, BEHIND = "in front", "behind"
"""Where the host runs an op: before the TPU, or after it."""


@dataclass(frozen=True)
class HostOp:
    """An op that cannot run on the TPU.

    Attributes:
      place: `FRONT` if the host runs the op before the TPU, `BEHIND` if after it; "" if the op is
        left out because it checks values that the TPU computes.
    """

    op: str
    node: str
    place: str
    reason: str


@dataclass(frozen=True)
class ConvertedSignature:
    """The division of one signature's nodes between the TPU and the host.

    Attributes:
      host_ops: The nodes that cannot run on the TPU, each with the reason.
      functions: Names of the functions that run on the TPU; empty if the host runs all nodes.
    """

    name: str
    num_tpu_ops: int
    num_host_ops: int
    host_ops: tuple[HostOp, ...]
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Conversion:
    """The result of `tpuserve.export.convert`.

    Attributes:
      directory: Directory of the SavedModel that was read.
      out: Directory of the SavedModel that was written.
      signatures: The converted signatures, sorted by name.
      notes: Choices that the conversion made, one sentence each.
    """

    directory: Path
    out: Path
    signatures: tuple[ConvertedSignature, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict that the json module can write."""
        data = dataclasses.asdict(self)
        return {**data, "directory": str(self.directory), "out": str(self.out)}
