"""tf.contrib.cudnn_rnn's cells, which compute what NVIDIA's library cuDNN does."""

from typing import Any

import tensorflow as tf

from trainer.compat.contrib.rnn.cells import LSTMBlockCell

v1: Any = tf.compat.v1


class CudnnCompatibleLSTMCell(LSTMBlockCell):
    """An LSTM cell with the variables of a layer of CudnnLSTM."""

    def __init__(self, num_units: int, reuse: bool | None = None, dtype: Any = None) -> None:
        super().__init__(
            num_units,
            forget_bias=0.0,
            dtype=dtype,
            reuse=reuse,
            name="cudnn_compatible_lstm_cell",
        )


class CudnnCompatibleGRUCell(v1.nn.rnn_cell.GRUCell):
    """A GRU cell with the variables of a layer of CudnnGRU.

    Its reset gate acts on the product of the state and the kernel, and not on the state.
    """

    def __init__(
        self,
        num_units: int,
        reuse: bool | None = None,
        kernel_initializer: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_units, reuse=reuse, dtype=dtype)
        self._initializer = kernel_initializer

    def build(self, input_shape: Any) -> None:
        """Create the variables."""
        units, depth = self.output_size, tf.TensorShape(input_shape).as_list()[-1]

        def add_pair(scope: str, rows: int, columns: int, bias: Any) -> tuple[Any, Any]:
            return (
                self.add_weight(f"{scope}/kernel", [rows, columns], initializer=self._initializer),
                self.add_weight(f"{scope}/bias", [columns], initializer=bias),
            )

        zeros = v1.zeros_initializer()
        self._gates = add_pair("gates", depth + units, 2 * units, v1.ones_initializer())
        self._of_input = add_pair("candidate/input_projection", depth, units, zeros)
        self._of_state = add_pair("candidate/hidden_projection", units, units, zeros)
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return the output and the new state, which are the same tensor."""
        gates = tf.sigmoid(_project(tf.concat([inputs, state], 1), self._gates))
        reset, update = tf.split(gates, 2, axis=1)
        new = tf.tanh(_project(inputs, self._of_input) + reset * _project(state, self._of_state))
        output = update * state + (1 - update) * new
        return output, output


def _project(values: Any, pair: tuple[Any, Any]) -> Any:
    kernel, bias = pair
    return values @ kernel + bias
