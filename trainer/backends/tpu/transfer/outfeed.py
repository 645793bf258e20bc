"""The outfeed: the transfer of tensors from the cores to the host."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import HostsDiffer, InvalidSetting
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology
from trainer.hosts.group import current_group
from trainer.infeed.tensor_nest import TensorNest
from trainer.tensorflow_internals import nest, tpu_ops


def check_same_input(batch: TensorNest) -> None:
    """Check that the batches of all hosts have the same tensors, in the same order."""
    hosts = current_group()
    if hosts.size == 1:
        return
    tensors = hosts.gather("the tensors of the input", [str(leaf) for leaf in batch.leaves])
    for host, others in enumerate(tensors):
        if others != tensors[0]:
            extra = [tensor for tensor in others if tensor not in tensors[0]]
            missing = [tensor for tensor in tensors[0] if tensor not in others]
            raise HostsDiffer(
                f"input_fn gave other tensors on {hosts.describe(host)} than on "
                f"{hosts.describe(0)}: {', '.join(extra) or 'none'} in place of "
                f"{', '.join(missing) or 'none'}. Every host must give the same names, types and "
                f"shapes: all replicas run one program."
            )


class Outfeed:
    """The tensors that each replica sends in a step, and the ops that receive them.

    Attributes:
      template: the nest of tensors that `enqueue` sends: a dict with one entry for each `StepPart`
        that sends tensors, and one for the mask of a batch with padding.
    """

    def __init__(self, topology: BatchTopology) -> None:
        self._topology = topology
        self.specs: list[Any] = []
        self.template: Any = {}

    @property
    def is_used(self) -> bool:
        """Whether the replicas send any tensor."""
        return bool(self.specs)

    def enqueue(self, tensors: dict[str, Any]) -> Any:
        """Build the op that sends a nest of tensors; called once, inside the TPU computation.

        Args:
          tensors: name of a `StepPart` → nest of tensors of rank 1 or more. The host concatenates
            the tensors of all replicas along the first dimension.
        """
        self.template = tensors
        flat = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(tensors)]
        paths = [path for path, _ in nest.flatten_with_tuple_paths(tensors)]
        for path, tensor in zip(paths, flat, strict=True):
            _check_shape(path, tensor)
        self.specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in flat]
        # Send from the first logical core only, because a replica with several cores must send its
        # tensors once.
        with tf.device(tf.compat.v1.tpu.core(0)):
            return tpu_ops.outfeed_enqueue_tuple(flat, name="outfeed")

    def dequeue(self) -> list[list[Any]]:
        """Build the ops with which the hosts receive the tensors of one step."""
        return [self._dequeue_replica(replica) for replica in range(self._topology.replicas)]

    def dequeue_concatenated(self) -> list[Any]:
        """Build the ops that receive the tensors of one step, concatenated over all replicas.

        With the input mode BROADCAST all replicas compute the same values. Then only the tensors of
        the first replica are returned.
        """
        received = self.dequeue()
        with tf.device(self._topology.host_device(self._topology.host_of(0))):
            if self._topology.input_mode == InputPipelineConfig.BROADCAST:
                # Receive the tensors of all replicas, although only the first replica's tensors are
                # used. Otherwise the other replicas would block, waiting for a receiver.
                all_tensors = [tf.identity(tensor) for tensors in received for tensor in tensors]
                with tf.control_dependencies(all_tensors):
                    return [tf.identity(tensor) for tensor in received[0]]
            return [tf.concat(tensors, axis=0) for tensors in zip(*received, strict=True)]

    def pack(self, flat: Sequence[Any]) -> Any:
        """Return a nest like `template` with other leaves."""
        return tf.nest.pack_sequence_as(self.template, list(flat))

    def _dequeue_replica(self, replica: int) -> list[Any]:
        with tf.device(self._topology.host_device(self._topology.host_of(replica))):
            return list(
                tpu_ops.outfeed_dequeue_tuple(
                    dtypes=[spec.dtype for spec in self.specs],
                    shapes=[spec.shape for spec in self.specs],
                    device_ordinal=self._topology.ordinal_of(replica),
                    name=f"outfeed_dequeue_{replica}",
                )
            )


def _check_shape(path: tuple[Any, ...], tensor: Any) -> None:
    sender, *keys = path
    name = f"{sender} tensor {''.join(f'[{key!r}]' for key in keys)}"
    if not tensor.shape.is_fully_defined():
        raise InvalidSetting(
            f"{name} has shape {tensor.shape}, and tensors that leave a TPU must have static "
            f"shapes. Set the shape with tensor.set_shape, or tf.ensure_shape."
        )
    if tensor.shape.rank == 0:
        raise InvalidSetting(
            f"{name} is a scalar. The host concatenates the tensors of all replicas along the "
            f"first dimension, so preserve the batch size dimension: tf.reshape(tensor, [1])."
        )
