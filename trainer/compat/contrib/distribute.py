"""tf.contrib.distribute: placeholders for its classes, which raise an error when instantiated.

Many programs import distribution strategies, and create one only if a flag asks for several GPUs.
The placeholders let these programs run without that flag.
"""

from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.compat import contrib_missing_names

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
]


class _Strategy:
    """The base class of the placeholders for tf.contrib.distribute's classes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        name = f"tf.contrib.distribute.{type(self).__name__}"
        raise InvalidSetting(f"{name}: {contrib_missing_names.find_replacement(name)}")


class AllReduceCrossDeviceOps(_Strategy):
    """Replaces the class for all-reduce over GPUs; raises an error when instantiated."""


class CollectiveAllReduceStrategy(_Strategy):
    """Replaces the strategy for the GPUs of several workers; raises an error when instantiated."""


class CrossDeviceOps(_Strategy):
    """Replaces the base class for sums over devices; raises an error when instantiated."""


class DistributeConfig(_Strategy):
    """Replaces the class that holds RunConfig's strategies; raises an error when instantiated."""


class DistributionStrategy(_Strategy):
    """Replaces the base class of distribution strategies; raises an error when instantiated."""


class MirroredStrategy(_Strategy):
    """Replaces the strategy for the GPUs of one machine; raises an error when instantiated."""


class OneDeviceStrategy(_Strategy):
    """Replaces the strategy for a single device; raises an error when instantiated."""


class ParameterServerStrategy(_Strategy):
    """Replaces the strategy with parameter servers; raises an error when instantiated."""


class ReductionToOneDeviceCrossDeviceOps(_Strategy):
    """Replaces the class for sums on a single device; raises an error when instantiated."""


class TPUStrategy(_Strategy):
    """Replaces the strategy for a TPU; raises an error when instantiated."""


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.distribute", __all__)
