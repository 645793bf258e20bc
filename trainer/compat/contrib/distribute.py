"""tf.contrib.distribute: placeholders for its classes, which raise an error when instantiated.

Many programs import distribution strategies, and create one only if a flag asks for several GPUs.
The placeholders let these programs run without that flag.
"""

from typing import Any

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib_names import missing_names

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
    """The base class of the placeholders for tf.contrib.distribute's classes.

    Programs can import a placeholder, but creating an object of the class raises an error.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Refuse to create an object, because tpuserve does not supply tf.contrib.distribute.

        Raises:
          InvalidSetting: always; the message says what to use instead.
        """
        name = f"tf.contrib.distribute.{type(self).__name__}"
        raise InvalidSetting(f"{name}: {missing_names.find_replacement(name)}")


class AllReduceCrossDeviceOps(_Strategy):
    """Placeholder for the class that sums tensors over GPUs by all-reduce; cannot be created."""


class CollectiveAllReduceStrategy(_Strategy):
    """Placeholder for the strategy for the GPUs of several workers; cannot be created."""


class CrossDeviceOps(_Strategy):
    """Placeholder for the base class that sums tensors over devices; cannot be created."""


class DistributeConfig(_Strategy):
    """Placeholder for the pair of strategies for training and evaluation; cannot be created."""


class DistributionStrategy(_Strategy):
    """Placeholder for the base class of distribution strategies; cannot be created."""


class MirroredStrategy(_Strategy):
    """Placeholder for the strategy for the GPUs of one machine; cannot be created."""


class OneDeviceStrategy(_Strategy):
    """Placeholder for the strategy for a single device; cannot be created."""


class ParameterServerStrategy(_Strategy):
    """Placeholder for the strategy with parameter servers; cannot be created."""


class ReductionToOneDeviceCrossDeviceOps(_Strategy):
    """Placeholder for the class that sums tensors on a single device; cannot be created."""


class TPUStrategy(_Strategy):
    """Placeholder for the strategy for a TPU; cannot be created."""


__getattr__ = missing_names.getattr_for("tf.contrib.distribute", __all__)
