from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_rnn_ops

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import rnn

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(tf.nn.rnn_cell|layer.add_variable):UserWarning"),
    pytest.mark.numeric,
]
v1 = tf.compat.v1
STATE = np.array([[1.0, -2.0], [0.5, 0.0]], np.float32)
INPUTS = np.array([[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]], np.float32)


def _run(*tensors: Any) -> Any:
    """Return the values of tensors, with random values in all variables."""
    with v1.Session() as session:
        for number, variable in enumerate(v1.global_variables()):
            values = np.random.default_rng(number).normal(size=variable.shape)
            session.run(variable.initializer, {variable.initial_value: values})
        return session.run(tensors)


@pytest.mark.parametrize("clip", [None, 0.4])
def test_lstm_block_cell_computes_what_the_kernel_does(clip: float | None) -> None:
    with tf.Graph().as_default():
        cell = rnn.LSTMBlockCell(2, cell_clip=clip, use_peephole=True)
        output, state = cell(INPUTS, (STATE, 2 * STATE))
        weights = {v.op.name.removeprefix("lstm_cell/"): v for v in cell.variables}
        kernel = gen_rnn_ops.lstm_block_cell(
            INPUTS, STATE, 2 * STATE, weights["kernel"],
            weights["w_i_diag"], weights["w_f_diag"], weights["w_o_diag"], weights["bias"],
            forget_bias=1.0, cell_clip=clip or -1.0, use_peephole=True,
        )  # fmt: skip
        values = _run(output, state.c, kernel.h, kernel.cs)
    np.testing.assert_allclose(values[:2], values[2:], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (rnn.GRUBlockCell, ["w_ru", "b_ru", "w_c", "b_c"]),
        (
            rnn.GRUBlockCellV2,
            ["gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias"],
        ),
    ],
)
def test_gru_block_cell_computes_what_the_kernel_does(make: Any, names: list[str]) -> None:
    with tf.Graph().as_default():
        cell = make(cell_size=2)
        output, _ = cell(INPUTS, STATE)
        assert [v.op.name for v in cell.variables] == [f"gru_cell/{name}" for name in names]
        gates, gates_bias, candidate, candidate_bias = cell.variables
        kernel = gen_rnn_ops.gru_block_cell(
            INPUTS, STATE, gates, candidate, gates_bias, candidate_bias
        )
        values = _run(output, kernel.h)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)


def test_gru_block_cell_needs_one_size() -> None:
    with pytest.raises(InvalidSetting, match="GRUBlockCell got num_units=2 and cell_size=3"):
        rnn.GRUBlockCell(2, 3)


@pytest.mark.slow
def test_layer_norm_cell_normalizes_the_gates_and_the_state() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("cell", initializer=v1.zeros_initializer()):
            cell = rnn.LayerNormBasicLSTMCell(2)
            output, state = cell(tf.ones([1, 3]), (tf.constant([[4.0, -4.0]]), tf.zeros([1, 2])))
        session.run(v1.global_variables_initializer())
        values = session.run([state.c, output])
        names = [v.op.name for v in v1.global_variables()]
    # The gates are 0: the state is [4, -4] sigmoid(1), normalized, and half of it is output.
    np.testing.assert_allclose(values[0], [[1, -1]], rtol=1e-5)
    np.testing.assert_allclose(values[1], [[np.tanh(1) / 2, -np.tanh(1) / 2]], rtol=1e-5)
    scope = "cell/layer_norm_basic_lstm_cell"
    assert names == [
        f"{scope}/kernel",
        *(
            f"{scope}/{gate}/{name}"
            for gate in ("input", "transform", "forget", "output", "state")
            for name in ("gamma", "beta")
        ),
    ]


def test_layer_norm_cell_without_norms_is_a_basic_lstm_cell() -> None:
    with tf.Graph().as_default():
        states = STATE, 2 * STATE
        cell = rnn.LayerNormBasicLSTMCell(2, layer_norm=False, dropout_keep_prob=1.0)
        output, _ = cell(INPUTS, states)
        with v1.variable_scope("", reuse=True):
            basic = rnn.BasicLSTMCell(2, name="layer_norm_basic_lstm_cell", reuse=True)
            expected, _ = basic(INPUTS, states)
        values = _run(output, expected)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)
