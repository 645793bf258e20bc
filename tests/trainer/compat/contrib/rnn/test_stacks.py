from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import rnn

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(tf.nn.rnn_cell|layer.add_variable):UserWarning"),
    pytest.mark.numeric,
]
v1 = tf.compat.v1
INPUTS = np.random.default_rng(0).normal(size=[2, 3, 4]).astype(np.float32)


def _cells() -> list[Any]:
    return [rnn.BasicRNNCell(2) for _ in range(2)]


@pytest.mark.slow
def test_a_stack_with_a_loop_computes_what_one_without_does() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        outputs, forward, backward = rnn.stack_bidirectional_dynamic_rnn(
            _cells(), _cells(), INPUTS, dtype=tf.float32, sequence_length=[3, 1]
        )
        dynamic = v1.global_variables()
        steps = tf.unstack(INPUTS, axis=1)
        static_outputs, static_forward, static_backward = rnn.stack_bidirectional_rnn(
            _cells(), _cells(), steps, dtype=tf.float32, sequence_length=[3, 1], scope="static"
        )
        static = v1.global_variables()[len(dynamic) :]
        session.run(v1.global_variables_initializer())
        session.run([a.assign(b) for a, b in zip(static, dynamic, strict=True)])
        first = session.run([outputs, *forward, *backward])
        second = session.run([tf.stack(static_outputs, 1), *static_forward, *static_backward])
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert [v.op.name for v in dynamic] == [
        f"stack_bidirectional_rnn/cell_{cell}/bidirectional_rnn/{way}/basic_rnn_cell/{name}"
        for cell in range(2)
        for way in ("fw", "bw")
        for name in ("kernel", "bias")
    ]


def test_a_stack_of_cells_without_partners_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="2 forward cells, 1 backward cells"):
        rnn.stack_bidirectional_dynamic_rnn(_cells(), _cells()[:1], INPUTS)
