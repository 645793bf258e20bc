"""The way of results, from the cores to the host."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.config.run_config import InputPipelineConfig
from trainer.distribution.topology import BatchTopology
from trainer.tensorflow_internals import tpu_ops


class Outfeed:
    """What each replica sends in a step, and how the host gets it."""

    def __init__(self, topology: BatchTopology) -> None:
        """Nothing is sent until `enqueue` is called."""
        self._topology = topology
        self._specs: list[Any] = []
        self._template: Any = None

    @property
    def is_used(self) -> bool:
        """Whether anything is sent."""
        return bool(self._specs)

    @property
    def specs(self) -> list[Any]:
        """The TensorSpecs of what one replica sends, in order."""
        return self._specs

    def enqueue(self, tensors: Any, what: str) -> Any:
        """The op that sends a nest of tensors; built once, inside of the computation.

        Args:
          tensors: each has a first dimension, along which replicas are put together.
          what: names the tensors in errors.

        Raises:
          InvalidSetting: a tensor is a scalar, or its shape is not known.
        """
        self._template = tensors
        flat = [tf.convert_to_tensor(each) for each in tf.nest.flatten(tensors)]
        for path, each in zip(_paths(tensors), flat, strict=True):
            _check(f"{what}{path}", each)
        self._specs = [tf.TensorSpec(each.shape, each.dtype) for each in flat]
        # An op of the computation sends from the core that the replica's step runs on.
        with tf.device(tf.compat.v1.tpu.core(0)):
            return tpu_ops.outfeed_enqueue_tuple(flat, name="outfeed")

    def dequeue(self) -> list[list[Any]]:
        """Ops of the hosts that take what each replica sent: per replica its tensors, flat."""
        return [self._of_replica(replica) for replica in range(self._topology.replicas)]

    def concatenated(self) -> Any:
        """What all replicas sent, put together along the first dimension; nested as it was.

        Under BROADCAST all replicas compute the same, and what the first sent stands for all.
        """
        received = self.dequeue()
        with tf.device(self._topology.host_device(self._topology.host_of(0))):
            if self._topology.input_mode == InputPipelineConfig.BROADCAST:
                # Taken all the same, or the others would wait for room.
                with tf.control_dependencies([each for one in received for each in one]):
                    whole = [tf.identity(each) for each in received[0]]
            else:
                whole = [tf.concat(each, axis=0) for each in zip(*received, strict=True)]
        return self.pack(whole)

    def pack(self, flat: Sequence[Any]) -> Any:
        """A list in the order of `specs`, nested as what was sent."""
        return tf.nest.pack_sequence_as(self._template, list(flat))

    def _of_replica(self, replica: int) -> list[Any]:
        with tf.device(self._topology.host_device(self._topology.host_of(replica))):
            return list(
                tpu_ops.outfeed_dequeue_tuple(
                    dtypes=[each.dtype for each in self._specs],
                    shapes=[each.shape for each in self._specs],
                    device_ordinal=self._topology.ordinal_of(replica),
                    name=f"outfeed_dequeue_{replica}",
                )
            )


def _paths(tensors: Any) -> list[str]:
    from trainer.tensorflow_internals import nest

    return [
        "".join(f"[{key!r}]" for key in path) for path, _ in nest.flatten_with_tuple_paths(tensors)
    ]


def _check(name: str, tensor: Any) -> None:
    if not tensor.shape.is_fully_defined():
        raise InvalidSetting(
            f"{name} has shape {tensor.shape}, and what leaves a TPU must have static shape. Set "
            f"it with tensor.set_shape, or tf.ensure_shape."
        )
    if tensor.shape.rank == 0:
        raise InvalidSetting(
            f"{name} is a scalar. The host gets the tensors of all replicas put together along "
            f"the first dimension, so preserve the batch size dimension: tf.reshape(it, [1])."
        )
