"""tf.contrib.rnn: the RNN cells and loops that TensorFlow 2 still has, in tf.compat.v1.nn."""

from tensorflow.compat.v1.nn import static_bidirectional_rnn, static_rnn, static_state_saving_rnn
from tensorflow.compat.v1.nn.rnn_cell import (
    BasicLSTMCell,
    BasicRNNCell,
    DeviceWrapper,
    DropoutWrapper,
    GRUCell,
    LSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    ResidualWrapper,
    RNNCell,
)

from trainer.compat import contrib_missing_names

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "GRUCell",
    "LSTMCell",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.rnn", __all__)
