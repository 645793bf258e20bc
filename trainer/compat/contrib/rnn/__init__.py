"""tf.contrib.rnn: RNN cells and loops, those that tf.compat.v1.nn still has and others."""

from typing import Any

from tensorflow.compat.v1.nn import (
    rnn_cell,
    static_bidirectional_rnn,
    static_rnn,
    static_state_saving_rnn,
)
from tensorflow.python.ops.rnn import _best_effort_input_batch_size as best_effort_input_batch_size
from tensorflow.python.ops.rnn import _transpose_batch_time as transpose_batch_time

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.rnn.cells import (
    GRUBlockCell,
    GRUBlockCellV2,
    LayerNormBasicLSTMCell,
    LSTMBlockCell,
)
from trainer.compat.contrib.rnn.fused import (
    FusedRNNCell,
    FusedRNNCellAdaptor,
    LSTMBlockFusedCell,
    TimeReversedFusedRNN,
)
from trainer.compat.contrib.rnn.stacks import (
    stack_bidirectional_dynamic_rnn,
    stack_bidirectional_rnn,
)

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "FusedRNNCell",
    "FusedRNNCellAdaptor",
    "GRUBlockCell",
    "GRUBlockCellV2",
    "GRUCell",
    "LSTMBlockCell",
    "LSTMBlockFusedCell",
    "LSTMCell",
    "LSTMStateTuple",
    "LayerNormBasicLSTMCell",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
    "TimeReversedFusedRNN",
    "best_effort_input_batch_size",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
    "transpose_batch_time",
]

# The cells of tf_keras. An import from the module's own path would make tf.nn.rnn_cell, for the
# whole process, the copies inside TensorFlow.
_cells: Any = rnn_cell
BasicLSTMCell = _cells.BasicLSTMCell
BasicRNNCell = _cells.BasicRNNCell
DeviceWrapper = _cells.DeviceWrapper
DropoutWrapper = _cells.DropoutWrapper
GRUCell = _cells.GRUCell
LSTMCell = _cells.LSTMCell
LSTMStateTuple = _cells.LSTMStateTuple
MultiRNNCell = _cells.MultiRNNCell
ResidualWrapper = _cells.ResidualWrapper
RNNCell = _cells.RNNCell

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.rnn", __all__)
