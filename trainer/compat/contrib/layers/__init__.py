"""tf.contrib.layers: layers with tf.contrib's variable names, scopes and defaults."""

from tensorflow.compat.v1.nn import safe_embedding_lookup_sparse

from trainer.compat import contrib_missing_names
from trainer.compat.contrib.layers.batch_normalization import batch_norm
from trainer.compat.contrib.layers.convolution import (
    conv1d,
    conv2d,
    conv2d_transpose,
    conv3d,
    convolution,
    convolution1d,
    convolution2d,
    convolution2d_transpose,
    convolution3d,
    separable_conv2d,
    separable_convolution2d,
)
from trainer.compat.contrib.layers.dense import (
    bias_add,
    dropout,
    elu,
    flatten,
    fully_connected,
    linear,
    maxout,
    one_hot_encoding,
    relu,
    relu6,
    softmax,
    unit_norm,
)
from trainer.compat.contrib.layers.initializers import (
    variance_scaling_initializer,
    xavier_initializer,
)
from trainer.compat.contrib.layers.initializers import (
    xavier_initializer as xavier_initializer_conv2d,
)
from trainer.compat.contrib.layers.normalization import group_norm, instance_norm, layer_norm
from trainer.compat.contrib.layers.optimization import (
    OPTIMIZER_CLS_NAMES,
    OPTIMIZER_SUMMARIES,
    optimize_loss,
)
from trainer.compat.contrib.layers.pooling import avg_pool2d, avg_pool3d, max_pool2d, max_pool3d
from trainer.compat.contrib.layers.regularizers import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
)
from trainer.compat.contrib.layers.sequences import embed_sequence, repeat, stack
from trainer.compat.contrib.layers.summaries import (
    summarize_activation,
    summarize_activations,
    summarize_collection,
    summarize_tensor,
    summarize_tensors,
)

__all__ = [
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "apply_regularization",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bias_add",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "convolution",
    "convolution1d",
    "convolution2d",
    "convolution2d_transpose",
    "convolution3d",
    "dropout",
    "elu",
    "embed_sequence",
    "flatten",
    "fully_connected",
    "group_norm",
    "instance_norm",
    "l1_l2_regularizer",
    "l1_regularizer",
    "l2_regularizer",
    "layer_norm",
    "linear",
    "max_pool2d",
    "max_pool3d",
    "maxout",
    "one_hot_encoding",
    "optimize_loss",
    "relu",
    "relu6",
    "repeat",
    "safe_embedding_lookup_sparse",
    "separable_conv2d",
    "separable_convolution2d",
    "softmax",
    "stack",
    "sum_regularizer",
    "summarize_activation",
    "summarize_activations",
    "summarize_collection",
    "summarize_tensor",
    "summarize_tensors",
    "unit_norm",
    "variance_scaling_initializer",
    "xavier_initializer",
    "xavier_initializer_conv2d",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.layers", __all__)
