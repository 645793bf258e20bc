"""Defines one compilation of a plan: a signature at a batch size."""

from dataclasses import dataclass

from tpuserve.stablehlo.cluster_finder import XlaCluster


@dataclass(frozen=True)
class CompileRequest:
    """One signature at one batch size, with the XLA clusters that it runs on the TPU.

    Attributes:
      error: Why the clusters or their argument shapes are unknown; None if they are known.
    """

    signature: str
    batch_size: int
    clusters: tuple[XlaCluster, ...]
    error: str | None = None
