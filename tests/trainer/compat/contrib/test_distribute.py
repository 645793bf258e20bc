from typing import Any

import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import distribute

STRATEGIES: dict[str, tuple[Any, int]] = {
    "OneDeviceStrategy": (lambda: distribute.OneDeviceStrategy("device:GPU:0"), 1),
    "no GPU": (lambda: distribute.MirroredStrategy(num_gpus=0), 1),
    "one GPU": (lambda: distribute.MirroredStrategy(num_gpus=1), 1),
    "two GPUs": (
        lambda: distribute.MirroredStrategy(
            num_gpus=2, cross_device_ops=distribute.AllReduceCrossDeviceOps("nccl", num_packs=2)
        ),
        2,
    ),
    "a worker": (lambda: distribute.MirroredStrategy(num_gpus_per_worker=2), 2),
    "devices": (lambda: distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]), 2),
    "CollectiveAllReduceStrategy": (lambda: distribute.CollectiveAllReduceStrategy(1), 1),
    "ParameterServerStrategy": (lambda: distribute.ParameterServerStrategy(1), 1),
}


@pytest.mark.parametrize(("make", "replicas"), STRATEGIES.values(), ids=list(STRATEGIES))
def test_strategy_takes_the_arguments_of_contrib(make: Any, replicas: int) -> None:
    strategy = make()
    assert isinstance(strategy, distribute.DistributionStrategy)
    assert strategy.num_replicas_in_sync == replicas
    with tf.Graph().as_default(), strategy.scope():
        assert distribute.get_distribution_strategy() is strategy


def test_devices_are_named_once() -> None:
    with pytest.raises(InvalidSetting, match="num_gpus=2 and .*Give one of them"):
        distribute.MirroredStrategy(["/gpu:0"], num_gpus=2)
    with pytest.raises(InvalidSetting, match="num_gpus is -1"):
        distribute.MirroredStrategy(num_gpus=-1)


def test_strategy_for_a_tpu_names_its_replacement() -> None:
    assert not isinstance(tf.distribute.get_strategy(), distribute.TPUStrategy)
    with pytest.raises(InvalidSetting, match="TPUStrategy: Use TPUEstimator"):
        distribute.TPUStrategy(None)
