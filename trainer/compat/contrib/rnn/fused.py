"""tf.contrib.rnn's cells for whole sequences, which come time first: [time, b, depth]."""

import abc
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting
from trainer.compat.contrib.rnn.cells import LSTMBlockCell

v1 = tf.compat.v1


class FusedRNNCell(abc.ABC):
    """A recurrent network as a function of a sequence."""

    @abc.abstractmethod
    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Return the outputs and the last state.

        Args:
          inputs: [time, b, depth], or a list of [b, depth], of which the outputs are one too.
          dtype: of the state; needed without an initial_state.
          sequence_length: int [b]; None if all sequences are of the same length.
        """


class FusedRNNCellAdaptor(FusedRNNCell):
    """Makes a FusedRNNCell of an RNNCell.

    Args:
      use_dynamic_rnn: whether to loop over the steps; else the graph has all of them.
    """

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell, self._is_dynamic = cell, use_dynamic_rnn

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Run the cell on each step."""
        state = {"initial_state": initial_state, "dtype": dtype, "scope": scope}
        if self._is_dynamic:
            stacked = (tf.stack if isinstance(inputs, list) else tf.convert_to_tensor)(inputs)
            outputs, last = v1.nn.dynamic_rnn(
                self._cell, stacked, sequence_length, time_major=True, **state
            )
            return tf.unstack(outputs) if isinstance(inputs, list) else outputs, last
        steps = inputs if isinstance(inputs, list) else tf.unstack(inputs)
        outputs, last = v1.nn.static_rnn(
            self._cell, steps, sequence_length=sequence_length, **state
        )
        return outputs if isinstance(inputs, list) else tf.stack(outputs), last


class TimeReversedFusedRNN(FusedRNNCell):
    """Runs a FusedRNNCell from the end of each sequence to its beginning."""

    def __init__(self, cell: FusedRNNCell) -> None:
        self._cell = cell

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Run the cell on the reversed sequences, and reverse its outputs."""
        outputs, last = self._cell(
            _reverse(inputs, sequence_length), initial_state, dtype, sequence_length, scope
        )
        return _reverse(outputs, sequence_length), last


class LSTMBlockFusedCell(FusedRNNCell):
    """An LSTM, which loops over the steps; the original had a kernel for the loop."""

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: Any = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        self.num_units = num_units
        self._options = num_units, forget_bias, cell_clip, use_peephole, dtype, reuse
        self._name = name
        self._cell: Any = None

    @property
    def variables(self) -> list[Any]:
        """The variables, once the cell was called."""
        return list(self._cell.variables) if self._cell else []

    weights = variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The variables that training changes, once the cell was called."""
        return list(self._cell.trainable_variables) if self._cell else []

    trainable_weights = trainable_variables

    def __call__(
        self,
        inputs: Any,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[Any, Any]:
        """Run the LSTM."""
        first = inputs[0] if isinstance(inputs, list) else inputs
        if initial_state is None and dtype is None:
            raise InvalidSetting("LSTMBlockFusedCell got no initial_state. Give it the dtype.")
        if self._cell is None:
            self._cell = LSTMBlockCell(*self._options, scope or self._name)
            # Build the cell here: in the loop its variables would be in the scope "rnn".
            self._cell.build(tf.TensorShape([None, first.shape[-1]]))
        return FusedRNNCellAdaptor(self._cell, use_dynamic_rnn=True)(
            inputs, initial_state, dtype, sequence_length
        )


def _reverse(values: Any, lengths: Any) -> Any:
    if isinstance(values, list):
        return values[::-1]
    if lengths is None:
        return tf.reverse(values, [0])
    return tf.reverse_sequence(values, lengths, seq_axis=0, batch_axis=1)
