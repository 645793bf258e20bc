from typing import Any

import pytest
import tensorflow as tf

from tests.tpuserve.lowering import replicas
from tpuserve.errors import InvalidSetting
from trainer.keras.step.steps import synchronize_moments

_ReduceOp = tf.distribute.ReduceOp


def reduce(reduce_op: Any) -> list[float]:
    """Reduce the values 1, 2 and 6 of three replicas; return the result of each replica."""

    def computation(x: Any) -> Any:
        with synchronize_moments(3):
            return tf.distribute.get_replica_context().all_reduce(reduce_op, [x])[0]

    results, _ = replicas.run_replicas(computation, [[1.0], [2.0], [6.0]], compiled=False)
    return [float(result) for result in results]


def test_all_reduce_sums_or_averages_over_the_replicas() -> None:
    assert reduce(_ReduceOp.SUM) == [9.0] * 3
    assert reduce(_ReduceOp.MEAN) == [3.0] * 3
    assert reduce("mean") == [3.0] * 3


def test_another_reduction_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"reduce_op='max'. Give ReduceOp.SUM or"):
        reduce("max")
