"""The graph of a TPU run made ready for the system it runs on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tpuserve.lowering.live_graph import lower_in_place
from trainer.backends.tpu.system import Device


@dataclass(frozen=True)
class LoweredTargets:
    """What a session runs.

    Attributes:
      targets: ops and tensors.
      end_infeeds, end_outfeeds: see `LoweredSubgraph`; None on a real TPU.
    """

    targets: list[Any]
    end_infeeds: Any = None
    end_outfeeds: Any = None


def ready(targets: Sequence[Any], device: Device) -> LoweredTargets:
    """The targets themselves on a real TPU; on an emulated one what they are lowered to."""
    if not device.is_emulated:
        return LoweredTargets(list(targets))
    lowered = lower_in_place(targets, compiled=device.is_compiled)
    for target, twin in zip(targets, lowered.targets, strict=True):
        # A queue does not know the shapes that infeed and outfeed know.
        if tf.is_tensor(twin):
            twin.set_shape(target.shape)
    return LoweredTargets(lowered.targets, lowered.end_infeeds, lowered.end_outfeeds)


def session_config(config: Any, device: Device) -> Any:
    """The ConfigProto of a run; on an emulated system TPU ops may be in the graph, unused."""
    if not device.is_emulated:
        return config
    changed = tf.compat.v1.ConfigProto()
    changed.CopyFrom(config)
    changed.graph_options.place_pruned_graph = True
    return changed
