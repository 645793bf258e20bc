from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import cudnn_rnn, rnn

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(tf.nn.rnn_cell|layer.add_variable):UserWarning"),
    pytest.mark.numeric,
]
v1 = tf.compat.v1
INPUTS = np.random.default_rng(0).normal(size=[3, 2, 4]).astype(np.float32)


def _make_biases_differ() -> list[Any]:
    return [
        v.assign(np.arange(v.shape[0]) / 10) for v in v1.global_variables() if "bias" in v.op.name
    ]


def test_lstm_computes_what_keras_does_layer_by_layer() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        outputs, (h, c) = cudnn_rnn.CudnnLSTM(1, 2)(INPUTS)
        session.run(v1.global_variables_initializer())
        session.run(_make_biases_differ())
        got, last_h, last_c, kernel, bias = session.run([outputs, h, c, *v1.global_variables()])
    # The columns of the gates i, c, f, o here are i, f, c, o in Keras.
    gates = np.r_[0:2, 4:6, 2:4, 6:8]
    layer = tf.keras.layers.LSTM(2, return_sequences=True, return_state=True, time_major=True)
    layer.build(INPUTS.shape)
    layer.set_weights([kernel[:4, gates], kernel[4:, gates], bias[gates]])
    expected = layer(INPUTS)
    for mine, other in zip((got, last_h[0], last_c[0]), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_gru_computes_what_keras_does_with_the_reset_after_the_product() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        outputs, (h,) = cudnn_rnn.CudnnGRU(1, 2)(INPUTS)
        session.run(v1.global_variables_initializer())
        session.run(_make_biases_differ())
        got, last, weights = session.run(
            [outputs, h, {v.op.name.split("cell/")[-1]: v for v in v1.global_variables()}]
        )
    gates, gates_bias = weights["gates/kernel"], weights["gates/bias"]
    # The gates r, u here are u, r in Keras, before the candidate.
    order = [2, 3, 0, 1]
    of_input, of_state = (
        (
            weights[f"candidate/{part}_projection/kernel"],
            weights[f"candidate/{part}_projection/bias"],
        )
        for part in ("input", "hidden")
    )
    layer = tf.keras.layers.GRU(2, return_sequences=True, return_state=True, time_major=True)
    layer.build(INPUTS.shape)
    layer.set_weights(
        [
            np.concatenate([gates[:4, order], of_input[0]], 1),
            np.concatenate([gates[4:, order], of_state[0]], 1),
            np.array([[*gates_bias[order], *of_input[1]], [0] * 4 + [*of_state[1]]]),
        ]
    )
    expected = layer(INPUTS)
    np.testing.assert_allclose(got, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last[0], expected[1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (cudnn_rnn.CudnnLSTM, "cudnn_compatible_lstm_cell"),
        (cudnn_rnn.CudnnGRU, "cudnn_compatible_gru_cell"),
        (cudnn_rnn.CudnnRNNTanh, "basic_rnn_cell"),
        (cudnn_rnn.CudnnRNNRelu, "basic_rnn_cell"),
    ],
)
def test_variables_have_the_names_of_the_originals_in_checkpoints(make: Any, name: str) -> None:
    with tf.Graph().as_default():
        layer = make(2, 3, name="layer")
        layer(INPUTS)
        make(1, 3, direction="bidirectional", name="both")(INPUTS)
        names = {v.op.name.split(f"/{name}/")[0] for v in v1.global_variables()}
        assert len(layer.trainable_variables) == len(v1.trainable_variables(scope="layer"))
    assert names == {
        "layer/rnn/multi_rnn_cell/cell_0",
        "layer/rnn/multi_rnn_cell/cell_1",
        "both/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw",
        "both/stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw",
    }


@pytest.mark.slow
def test_the_cells_read_a_checkpoint_of_the_layers(tmp_path: Path) -> None:
    lengths, states = [3, 1], np.full([4, 2, 2], 0.5, np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        layer = cudnn_rnn.CudnnLSTM(2, 2, direction="bidirectional", dropout=0.5)
        outputs, (h, c) = layer(INPUTS, (states, -states), sequence_lengths=lengths, training=False)
        batch_major, (h_batch_major, _) = layer(
            tf.transpose(INPUTS, [1, 0, 2]),
            tuple(tf.transpose(part, [1, 0, 2]) for part in (states, -states)),
            lengths,
            time_major=False,
            training=False,
        )
        session.run(v1.global_variables_initializer())
        session.run(_make_biases_differ())
        path = v1.train.Saver().save(session, str(tmp_path / "model"))
        expected = session.run([outputs, h, c])
        turned = session.run([batch_major, h_batch_major])
    np.testing.assert_allclose(turned[0], expected[0].transpose(1, 0, 2), rtol=1e-5)
    np.testing.assert_allclose(turned[1], expected[1].transpose(1, 0, 2), rtol=1e-5)
    with tf.Graph().as_default(), v1.Session() as session:
        ways = [[cudnn_rnn.CudnnCompatibleLSTMCell(2) for _ in range(2)] for _ in range(2)]
        start = [rnn.LSTMStateTuple(-states[0], states[0])] * 2
        with v1.variable_scope("cudnn_lstm"):
            outputs, forward, backward = rnn.stack_bidirectional_dynamic_rnn(
                ways[0],
                ways[1],
                tf.constant(INPUTS),
                start,
                start,
                tf.float32,
                lengths,
                time_major=True,
            )
        v1.train.Saver().restore(session, path)
        got, forward, backward = session.run([outputs, forward, backward])
    np.testing.assert_allclose(got, expected[0], rtol=1e-5)
    last = [state for pair in zip(forward, backward, strict=True) for state in pair]
    np.testing.assert_allclose([state.h for state in last], expected[1], rtol=1e-5)
    np.testing.assert_allclose([state.c for state in last], expected[2], rtol=1e-5)


def test_initial_values_are_those_of_single_matrices_and_sums_of_two_biases() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        cudnn_rnn.CudnnGRU(
            1, 5,
            kernel_initializer=lambda shape, dtype: tf.fill(shape, tf.cast(shape[1], dtype)),
            bias_initializer=v1.ones_initializer(),
        )(INPUTS)  # fmt: skip
        session.run(v1.global_variables_initializer())
        gates, bias, *candidate = session.run(v1.global_variables())
    # Matrices of cuDNN are [units, depth] for the inputs, of depth 4, and [units, units].
    assert (gates == [[4.0]] * 4 + [[5.0]] * 5).all()
    assert (bias == 2).all()
    assert [np.unique(values).tolist() for values in candidate] == [[4], [1], [5], [1]]


@pytest.mark.slow
def test_dropout_of_training_acts_between_layers() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        layers = [cudnn_rnn.CudnnRNNRelu(number, 4, dropout=0.5, seed=1) for number in (1, 2)]
        runs = [[layer(INPUTS, training=on)[0] for on in (True, False)] for layer in layers]
        session.run(v1.global_variables_initializer())
        (one, one_off), (two, two_off) = session.run(runs)
    np.testing.assert_array_equal(one, one_off)
    assert not np.allclose(two, two_off)


def test_a_direction_or_a_mode_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="Use one of unidirectional, bidirectional"):
        cudnn_rnn.CudnnLSTM(1, 2, direction="both")
    with (
        tf.Graph().as_default(),
        pytest.raises(InvalidSetting, match="'skip_input' for inputs of depth 4. Use 'linear_in"),
    ):
        cudnn_rnn.CudnnLSTM(1, 4, input_mode="skip_input")(INPUTS)
