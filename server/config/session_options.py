"""Builds the options of TensorFlow sessions from the flags of the server."""

from pathlib import Path
from typing import Any

from server.config import messages, textproto
from server.config.settings import Settings


def build_session_config(settings: Settings, base_config: bytes = b"") -> bytes:
    """Build the serialised ConfigProto of every session.

    The options are those of --tensorflow_session_config_file, or of `base_config` if there is no
    such file.

    Args:
      base_config: a serialised ConfigProto, from the platform config file; empty for defaults.
    """
    # Import the messages here and not at the top of the file, because the import also imports
    # TensorFlow, which takes seconds.
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

    config: Any = config_pb2.ConfigProto.FromString(base_config)
    if settings.tensorflow_session_config_file:
        path = Path(settings.tensorflow_session_config_file)
        config = config_pb2.ConfigProto.FromString(read_session_config(path))
    both = settings.tensorflow_session_parallelism
    if both or settings.tensorflow_intra_op_parallelism:
        config.intra_op_parallelism_threads = settings.tensorflow_intra_op_parallelism or both
    if both or settings.tensorflow_inter_op_parallelism:
        config.inter_op_parallelism_threads = settings.tensorflow_inter_op_parallelism or both
    if settings.xla_cpu_compilation_enabled:
        options = config.graph_options.optimizer_options
        options.global_jit_level = type(options).ON_1
        options.cpu_global_jit = True
    if settings.mixed_precision == "bfloat16":
        rewrites = config.graph_options.rewrite_options
        rewrites.auto_mixed_precision_onednn_bfloat16 = rewriter_config_pb2.RewriterConfig.ON
    return bytes(config.SerializeToString())


def read_session_config(path: Path) -> bytes:
    """Read a file with a ConfigProto in text form, without an import of TensorFlow."""
    empty = messages.new_message("tensorflow.ConfigProto", messages.tensorflow_pool())
    return bytes(textproto.read_message(path, empty).SerializeToString())
