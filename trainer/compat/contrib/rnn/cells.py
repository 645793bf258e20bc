"""tf.contrib.rnn's cells, of ops that CPUs and TPUs have, with the variables of the originals.

The kernels of the originals, such as LSTMBlockCell, compute the same as these ops.
"""

from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib import layers

v1: Any = tf.compat.v1
_cells: Any = v1.nn.rnn_cell


class LSTMBlockCell(_cells.LSTMCell):
    """An LSTMCell with the arguments of the original, which had a kernel of its own."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: bool | None = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(
            num_units,
            use_peepholes=use_peephole,
            # The kernel did not clip by a value that is not above 0.
            cell_clip=cell_clip if cell_clip is not None and cell_clip > 0 else None,
            forget_bias=forget_bias,
            reuse=reuse,
            name=name,
            dtype=dtype,
        )


class GRUBlockCell(_cells.GRUCell):
    """A GRUCell whose variables have names of their own: w_ru, b_ru, w_c and b_c."""

    _variable_names = ("w_ru", "b_ru", "w_c", "b_c")

    def __init__(
        self,
        num_units: int | None = None,
        cell_size: int | None = None,
        reuse: bool | None = None,
        name: str = "gru_cell",
    ) -> None:
        if (num_units is None) == (cell_size is None):
            raise InvalidSetting(
                f"{type(self).__name__} got num_units={num_units} and cell_size={cell_size}, its "
                f"old name. Give one of them."
            )
        super().__init__(cell_size if num_units is None else num_units, reuse=reuse, name=name)

    def build(self, input_shape: Any) -> None:
        """Create the variables."""
        units = self.output_size
        rows = tf.TensorShape(input_shape).as_list()[-1] + units
        gates, gates_bias, candidate, candidate_bias = self._variable_names
        self._block = (
            self.add_weight(gates, [rows, 2 * units]),
            self.add_weight(gates_bias, [2 * units], initializer=v1.ones_initializer()),
            self.add_weight(candidate, [rows, units]),
            self.add_weight(candidate_bias, [units], initializer=v1.zeros_initializer()),
        )
        self.built = True

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return the output and the new state, which are the same tensor."""
        gates, gates_bias, candidate, candidate_bias = self._block
        reset, update = tf.split(
            tf.sigmoid(tf.concat([inputs, state], 1) @ gates + gates_bias), 2, axis=1
        )
        new = tf.tanh(tf.concat([inputs, reset * state], 1) @ candidate + candidate_bias)
        output = update * state + (1 - update) * new
        return output, output


class GRUBlockCellV2(GRUBlockCell):
    """A GRUBlockCell whose variables have the names of GRUCell's."""

    _variable_names = ("gates/kernel", "gates/bias", "candidate/kernel", "candidate/bias")


class LayerNormBasicLSTMCell(_cells.RNNCell):
    """A basic LSTM cell with layer normalization, and dropout of the candidate values.

    Sources: Ba, Kiros and Hinton, "Layer Normalization", 2016; Semeniuta, Severyn and Barth,
    "Recurrent Dropout without Memory Loss", 2016.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        input_size: Any = None,
        activation: Any = tf.tanh,
        layer_norm: bool = True,
        norm_gain: float = 1.0,
        norm_shift: float = 0.0,
        dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None,
        reuse: bool | None = None,
    ) -> None:
        super().__init__(_reuse=reuse)
        self._units, self._forget_bias, self._activation = num_units, forget_bias, activation
        self._has_layer_norm, self._gain, self._shift = layer_norm, norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> Any:
        """The sizes of the cell state and of the output."""
        return _cells.LSTMStateTuple(self._units, self._units)

    @property
    def output_size(self) -> int:
        """The number of units."""
        return self._units

    def call(self, inputs: Any, state: Any) -> tuple[Any, Any]:
        """Return the output and the new state."""
        cell, output = state
        joined = tf.concat([inputs, output], 1)
        shape = [joined.shape.as_list()[1], 4 * self._units]
        gates = joined @ v1.get_variable("kernel", shape, joined.dtype)
        if not self._has_layer_norm:
            gates += v1.get_variable("bias", shape[1:], joined.dtype)
        enter, new, forget, leave = (
            self._normalize(gate, name)
            for gate, name in zip(
                tf.split(gates, 4, axis=1), ("input", "transform", "forget", "output"), strict=True
            )
        )
        new = self._activation(new)
        if not isinstance(self._keep_prob, float) or self._keep_prob < 1:
            new = v1.nn.dropout(new, self._keep_prob, seed=self._seed)
        cell = cell * tf.sigmoid(forget + self._forget_bias) + tf.sigmoid(enter) * new
        cell = self._normalize(cell, "state")
        output = self._activation(cell) * tf.sigmoid(leave)
        return output, _cells.LSTMStateTuple(cell, output)

    def _normalize(self, values: Any, scope: str) -> Any:
        if not self._has_layer_norm:
            return values
        with v1.variable_scope(scope):
            for name, start in (("gamma", self._gain), ("beta", self._shift)):
                v1.get_variable(
                    name, values.shape[-1:], values.dtype, v1.constant_initializer(start)
                )
        return layers.layer_norm(values, reuse=True, scope=scope)
