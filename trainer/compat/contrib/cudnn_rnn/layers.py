"""tf.contrib.cudnn_rnn's layers, which ran on NVIDIA's library cuDNN, of ops that CPUs have.

The variables are those that the originals wrote to checkpoints beside the buffer of the GPU, which
is not read: a checkpoint's weights are restored here, but not its optimizer's slots of the buffer.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.cudnn_rnn.cells import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell

v1: Any = tf.compat.v1
_DIRECTIONS = {"unidirectional": 1, "bidirectional": 2}


class _CudnnRNN(v1.layers.Layer):
    """Layers of a recurrent network.

    Args:
      direction: "unidirectional" or "bidirectional".
      dropout: rate of the inputs of each layer but the first, which is dropped in training.
    """

    _make_cell: Callable[..., Any]

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        input_mode: str = "linear_input",
        direction: str = "unidirectional",
        dropout: float = 0.0,
        seed: int | None = None,
        dtype: Any = tf.float32,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(dtype=dtype, name=name)
        if direction not in _DIRECTIONS:
            raise InvalidSetting(
                f"{type(self).__name__} got direction={direction!r}. Use one of "
                f"{', '.join(_DIRECTIONS)}."
            )
        self.num_layers, self.num_units = num_layers, num_units
        self.input_mode, self.direction, self.num_dirs = (
            input_mode,
            direction,
            _DIRECTIONS[direction],
        )
        self._dropout, self._seed = dropout, seed
        self._cells: list[Any] = []
        self._kernel_initializer = kernel_initializer or v1.glorot_uniform_initializer(seed)
        self._bias_initializer = bias_initializer or v1.zeros_initializer()

    @property
    def trainable_weights(self) -> list[Any]:
        """The variables, once the layer was called."""
        return [variable for cell in self._cells for variable in cell.trainable_weights]

    def build(self, input_shape: Any) -> None:
        """Create the variables, with the names that the originals have in checkpoints."""
        depth = tf.TensorShape(input_shape).as_list()[-1]
        if self.input_mode != "linear_input" and (
            self.input_mode != "auto_select" or depth == self.num_units
        ):
            raise InvalidSetting(
                f"{type(self).__name__} got input_mode={self.input_mode!r} for inputs of depth "
                f"{depth}. Use 'linear_input'."
            )
        for layer in range(self.num_layers):
            for scope in self._list_scopes(layer):
                self._cells.append(self._make_cell(self.num_units, dtype=self.dtype))
                with v1.variable_scope(scope, custom_getter=self._get_variable(depth)):
                    self._cells[-1].build(tf.TensorShape([None, depth]))
            depth = self.num_dirs * self.num_units
        super().build(input_shape)

    def call(
        self,
        inputs: Any,
        initial_state: Any = None,
        sequence_lengths: Any = None,
        time_major: bool = True,
        training: bool = True,
    ) -> tuple[Any, Any]:
        """Run the layers.

        Args:
          inputs: [time, b, depth], or [b, time, depth] without time_major.
          initial_state: a tuple of [num_layers * num_dirs, b, num_units], or [b, num_layers *
            num_dirs, num_units] without time_major: h and c of an LSTM, h of others.
          sequence_lengths: int [b]; None if all sequences are of the same length.

        Returns:
          The outputs, [time, b, num_dirs * num_units] or [b, time, ...], and the last state, as
          initial_state.
        """
        values, axis = tf.convert_to_tensor(inputs, self.dtype), 0 if time_major else 1
        starts = self._split_state(initial_state, axis)
        last: list[Any] = []
        options = {"dtype": self.dtype, "time_major": time_major}
        for first in range(0, len(self._cells), self.num_dirs):
            layer = slice(first, first + self.num_dirs)
            if first and self._dropout and training:
                values = tf.nn.dropout(values, self._dropout, seed=self._seed)
            arguments = *self._cells[layer], values, sequence_lengths, *starts[layer]
            if self.num_dirs == 1:
                values, state = v1.nn.dynamic_rnn(*arguments, **options)
                last.append(state)
            else:
                outputs, states = v1.nn.bidirectional_dynamic_rnn(*arguments, **options)
                values = tf.concat(outputs, 2)
                last += states
        return values, self._join_states(last, axis)

    def _split_state(self, state: Any, axis: int) -> list[Any]:
        """Return the first state of each cell."""
        number = self.num_layers * self.num_dirs
        if state is None:
            return [None] * number
        (states,) = state
        return tf.unstack(tf.cast(states, self.dtype), number, axis)

    def _join_states(self, states: list[Any], axis: int) -> tuple[Any, ...]:
        return (tf.stack(states, axis),)

    def _list_scopes(self, layer: int) -> list[str]:
        if self.num_dirs == 1:
            return [f"rnn/multi_rnn_cell/cell_{layer}"]
        return [
            f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}" for way in ("fw", "bw")
        ]

    def _get_variable(self, depth: int) -> Callable[..., Any]:
        """Return a getter that gives each variable the initial values of cuDNN's matrices."""
        units = self.num_units

        def initial_kernel(shape: Any, dtype: Any, **_: Any) -> Any:
            rows = [depth, units] if shape[0] == depth + units else [shape[0]]
            columns = [
                tf.concat(
                    [tf.transpose(self._kernel_initializer([units, size], dtype)) for size in rows],
                    0,
                )
                for _ in range(shape[1] // units)
            ]
            return tf.concat(columns, 1)

        def initial_bias(shape: Any, dtype: Any, **_: Any) -> Any:
            # cuDNN has two biases, which these cells add up.
            return self._bias_initializer(shape, dtype) + self._bias_initializer(shape, dtype)

        def get(getter: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
            if name.endswith("/kernel"):
                options["initializer"] = initial_kernel
            elif "/candidate/" in name:
                options["initializer"] = self._bias_initializer
            else:
                options["initializer"] = initial_bias
            return getter(name, *args, **options)

        return get


class CudnnLSTM(_CudnnRNN):
    """Layers of an LSTM; `_CudnnRNN` documents the arguments."""

    _make_cell = CudnnCompatibleLSTMCell

    def _split_state(self, state: Any, axis: int) -> list[Any]:
        if state is None:
            return super()._split_state(None, axis)
        outputs, cells = (super(CudnnLSTM, self)._split_state((part,), axis) for part in state)
        return [v1.nn.rnn_cell.LSTMStateTuple(*pair) for pair in zip(cells, outputs, strict=True)]

    def _join_states(self, states: list[Any], axis: int) -> tuple[Any, ...]:
        return tuple(
            tf.stack(part, axis)
            for part in ([state.h for state in states], [state.c for state in states])
        )


class CudnnGRU(_CudnnRNN):
    """Layers of a GRU."""

    _make_cell = CudnnCompatibleGRUCell


class CudnnRNNTanh(_CudnnRNN):
    """Layers of a basic RNN with tanh."""

    _make_cell = v1.nn.rnn_cell.BasicRNNCell


class CudnnRNNRelu(_CudnnRNN):
    """Layers of a basic RNN with ReLU."""

    @staticmethod
    def _make_cell(units: int, dtype: Any) -> Any:
        return v1.nn.rnn_cell.BasicRNNCell(units, activation=tf.nn.relu, dtype=dtype)
