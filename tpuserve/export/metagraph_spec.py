"""What one metagraph of an export is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.tags import TagSet


@dataclass(frozen=True)
class MetagraphSpec:
    """A graph with its signatures, ready to be written.

    Attributes:
      tags: the tag set to write it under.
      graph: the tf.Graph.
      signatures: name → SignatureDef.
      restore: gives the variables their values in a session of the graph.
      saver: the tf.compat.v1.train.Saver that saves them; None saves all variables.
      init_op: the op that a loader runs after restoring, to fill tables; None for no such op.
    """

    tags: TagSet
    graph: Any
    signatures: Mapping[str, Any]
    restore: Callable[[Any], None]
    init_op: Any = None
    saver: Any = None
