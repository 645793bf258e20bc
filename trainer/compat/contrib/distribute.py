"""tf.contrib.distribute: classes that can be imported and compared, and not created.

Programs import distribution strategies that they create only if a flag asks for several GPUs.
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
    """The base class of the classes that this module offers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Refuse to create an object.

        Raises:
          InvalidSetting: always; the message says what to use instead.
        """
        name = f"tf.contrib.distribute.{type(self).__name__}"
        raise InvalidSetting(f"{name}: {missing_names.find_replacement(name)}")


class AllReduceCrossDeviceOps(_Strategy):
    """The sum over GPUs by all-reduce."""


class CollectiveAllReduceStrategy(_Strategy):
    """Training on the GPUs of several workers."""


class CrossDeviceOps(_Strategy):
    """The sum over devices."""


class DistributeConfig(_Strategy):
    """The strategies of training and evaluation."""


class DistributionStrategy(_Strategy):
    """The base class of the strategies."""


class MirroredStrategy(_Strategy):
    """Training on the GPUs of one machine."""


class OneDeviceStrategy(_Strategy):
    """Training on one device."""


class ParameterServerStrategy(_Strategy):
    """Training with parameter servers."""


class ReductionToOneDeviceCrossDeviceOps(_Strategy):
    """The sum over devices on one of them."""


class TPUStrategy(_Strategy):
    """Training on a TPU."""


__getattr__ = missing_names.getattr_for("tf.contrib.distribute", __all__)
