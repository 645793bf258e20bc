"""tf.contrib.distribute: TensorFlow's strategies, with the arguments that they had there."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpuserve import validation
from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names
from trainer.config.strategies import DistributeConfig

_distribute = tf.compat.v1.distribute

CrossDeviceOps = tf.distribute.CrossDeviceOps
DistributionStrategy = _distribute.Strategy
OneDeviceStrategy = _distribute.OneDeviceStrategy
ReductionToOneDeviceCrossDeviceOps = tf.distribute.ReductionToOneDevice
get_distribution_strategy = get_strategy = _distribute.get_strategy
get_loss_reduction = _distribute.get_loss_reduction
get_replica_context = _distribute.get_replica_context
has_distribution_strategy = has_strategy = _distribute.has_strategy
in_cross_replica_context = _distribute.in_cross_replica_context

__all__ = [
    "AllReduceCrossDeviceOps",
    "CollectiveAllReduceStrategy",
    "CrossDeviceOps",
    "DistributeConfig",
    "DistributionStrategy",
    "MirroredStrategy",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
    "ReductionToOneDeviceCrossDeviceOps",
    "TPUStrategy",
    "get_distribution_strategy",
    "get_loss_reduction",
    "get_replica_context",
    "get_strategy",
    "has_distribution_strategy",
    "has_strategy",
    "in_cross_replica_context",
]


class AllReduceCrossDeviceOps(tf.distribute.HierarchicalCopyAllReduce):
    """Sums over devices; which algorithm does so has no effect on the results."""

    def __init__(
        self,
        all_reduce_alg: str = "nccl",
        num_packs: int = 1,
        agg_small_grads_max_bytes: int = 0,
        agg_small_grads_max_group: int = 10,
    ) -> None:
        """Take the arguments of tf.contrib's class; the first and the last two have no effect."""
        super().__init__(num_packs)


class MirroredStrategy(tf.compat.v1.distribute.MirroredStrategy):
    """One replica on each of several devices of this machine."""

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        num_gpus: int | None = None,
        num_gpus_per_worker: int | None = None,
        cross_device_ops: Any = None,
        auto_shard_dataset: bool = False,
        cross_tower_ops: Any = None,
    ) -> None:
        """Name the devices, or give the number of GPUs; by default, take all GPUs, or the CPU.

        Args:
          devices: names of devices, one for each replica.
          num_gpus, num_gpus_per_worker: the number of replicas; 0 stands for the CPU.
          cross_device_ops, cross_tower_ops: a `CrossDeviceOps`.
          auto_shard_dataset: has no effect: input_fn runs once.
        """
        counts = [count for count in (num_gpus, num_gpus_per_worker) if count is not None]
        if len(counts) + (devices is not None) > 1:
            raise InvalidSetting(
                f"MirroredStrategy has devices={devices!r}, num_gpus={num_gpus} and "
                f"num_gpus_per_worker={num_gpus_per_worker}. Give one of them."
            )
        if counts:
            validation.check_integer("MirroredStrategy num_gpus", counts[0], least=0)
            devices = [f"/device:GPU:{index}" for index in range(counts[0])] or ["/device:CPU:0"]
        super().__init__(devices, cross_device_ops or cross_tower_ops)


class CollectiveAllReduceStrategy(tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy):
    """One replica on each device of each worker of TF_CONFIG."""

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        """Create the strategy; TensorFlow itself counts the GPUs of the worker."""
        super().__init__()


class ParameterServerStrategy(tf.compat.v1.distribute.experimental.ParameterServerStrategy):
    """A replica on each worker of TF_CONFIG, and variables on its parameter servers."""

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        """Create the strategy; TensorFlow itself counts the GPUs of the worker."""
        super().__init__()


class TPUStrategy:
    """Replaces the strategy for a TPU; raises an error when instantiated."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        name = "tf.contrib.distribute.TPUStrategy"
        raise InvalidSetting(f"{name}: {contrib_missing_names.find_replacement(name)}")


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.distribute", __all__)
