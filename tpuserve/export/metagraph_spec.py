"""Defines the description of a metagraph that an export writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpuserve.tags import TagSet


@dataclass(frozen=True)
class MetagraphSpec:
    """A tf.Graph with all that is needed to write it as a metagraph of a SavedModel.

    Attributes:
      signatures: Name → SignatureDef.
      restore: A function that takes a session of the graph, and sets the values of the variables.
      saver: The tf.compat.v1.train.Saver that saves the variables; None to save all variables.
      init_op: The op that a loader runs after the restore, to fill tables; None for no op.
    """

    tags: TagSet
    graph: Any
    signatures: Mapping[str, Any]
    restore: Callable[[Any], None]
    init_op: Any = None
    saver: Any = None
