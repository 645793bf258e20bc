"""tf.contrib.cudnn_rnn: its layers and cells, of ops that CPUs and TPUs have."""

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.cudnn_rnn.cells import CudnnCompatibleGRUCell, CudnnCompatibleLSTMCell
from trainer.compat.contrib.cudnn_rnn.layers import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh

__all__ = [
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnGRU",
    "CudnnLSTM",
    "CudnnRNNRelu",
    "CudnnRNNTanh",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.cudnn_rnn", __all__)
