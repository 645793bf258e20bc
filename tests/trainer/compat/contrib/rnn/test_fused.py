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
LENGTHS = [3, 1]
INPUTS = np.random.default_rng(0).normal(size=[3, 2, 4]).astype(np.float32)


def _run(*tensors: Any) -> Any:
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(tensors)


def test_fused_cell_computes_what_the_kernel_does_up_to_the_end_of_each_sequence() -> None:
    with tf.Graph().as_default():
        cell = rnn.LSTMBlockFusedCell(2)
        outputs, state = cell(INPUTS, dtype=tf.float32, sequence_length=LENGTHS)
        kernel, bias = cell.variables
        zeros = tf.zeros([2, 2])
        none = tf.zeros([2])
        expected = gen_rnn_ops.block_lstm(
            3, INPUTS, zeros, zeros, kernel, none, none, none, bias, forget_bias=1.0, cell_clip=-1.0
        )
        got, last, all_outputs, all_cells = _run(outputs, state, expected.h, expected.cs)
    np.testing.assert_allclose(got[:, 0], all_outputs[:, 0], rtol=1e-5)
    np.testing.assert_allclose(got[:, 1], [all_outputs[0, 1], [0, 0], [0, 0]], rtol=1e-5)
    np.testing.assert_allclose(last.c, [all_cells[2, 0], all_cells[0, 1]], rtol=1e-5)
    np.testing.assert_allclose(last.h, [all_outputs[2, 0], all_outputs[0, 1]], rtol=1e-5)


def test_each_fused_cell_has_variables_of_its_own_and_keeps_them() -> None:
    with tf.Graph().as_default():
        first, second = rnn.LSTMBlockFusedCell(2), rnn.LSTMBlockFusedCell(2)
        assert first.variables == []
        for cell in (first, second, first):
            cell(INPUTS, dtype=tf.float32)
        rnn.LSTMBlockFusedCell(2)(INPUTS, dtype=tf.float32, scope="own")
        names = [v.op.name for v in v1.global_variables()]
    assert names == [
        f"{scope}/{name}"
        for scope in ("lstm_fused_cell", "lstm_fused_cell_1", "own")
        for name in ("kernel", "bias")
    ]
    assert [v.op.name for v in first.trainable_variables] == names[:2]


def test_reversed_cell_reads_each_sequence_from_its_end() -> None:
    with tf.Graph().as_default():
        cell = rnn.LSTMBlockFusedCell(2)
        backward, _ = rnn.TimeReversedFusedRNN(cell)(
            INPUTS, dtype=tf.float32, sequence_length=LENGTHS
        )
        of_list, _ = rnn.TimeReversedFusedRNN(cell)(list(INPUTS), dtype=tf.float32)
        of_all, _ = rnn.TimeReversedFusedRNN(cell)(INPUTS, dtype=tf.float32)
        turned, _ = cell(INPUTS[::-1], dtype=tf.float32)
        short, _ = cell(INPUTS[:1], dtype=tf.float32)
        got, steps, got_all, from_end, one_step = _run(backward, of_list, of_all, turned, short)
    np.testing.assert_allclose(got[:, 0], from_end[::-1, 0], rtol=1e-5)
    np.testing.assert_allclose(got[0, 1], one_step[0, 1], rtol=1e-5)
    np.testing.assert_allclose(got_all, from_end[::-1], rtol=1e-5)
    np.testing.assert_allclose(steps, got_all, rtol=1e-5)


def test_adaptor_runs_a_cell_with_a_loop_or_without_one() -> None:
    with tf.Graph().as_default():
        cell = rnn.GRUBlockCell(2)
        runs = [
            rnn.FusedRNNCellAdaptor(cell, use_dynamic_rnn=is_dynamic)(inputs, dtype=tf.float32)
            for is_dynamic in (False, True)
            for inputs in (tf.constant(INPUTS), tf.unstack(INPUTS))
        ]
        assert [isinstance(outputs, list) for outputs, _ in runs] == [False, True, False, True]
        values = _run(*(tf.stack(outputs) for outputs, _ in runs))
    for other in values[1:]:
        np.testing.assert_allclose(other, values[0], rtol=1e-5)


def test_fused_cell_without_a_state_needs_the_dtype() -> None:
    with pytest.raises(InvalidSetting, match="Give it the dtype"):
        rnn.LSTMBlockFusedCell(2)(INPUTS)
