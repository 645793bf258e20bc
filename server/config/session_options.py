"""How sessions are to run, from flags and the files that they name, as a serialised ConfigProto."""

from pathlib import Path
from typing import Any

from server.config import textproto
from server.config.settings import Settings


def read(settings: Settings, start: bytes = b"") -> bytes:
    """The session options of all models.

    --tensorflow_session_config_file is where they start; the parallelism flags that are set go
    before what it says.

    Args:
      start: a serialised ConfigProto, where they start without such a file.

    Raises:
      InvalidConfig: a file cannot be read or parsed.
    """
    # Imported here because the messages bring TensorFlow.
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

    config: Any = config_pb2.ConfigProto.FromString(start)
    if settings.tensorflow_session_config_file:
        path = Path(settings.tensorflow_session_config_file)
        config = textproto.parse(textproto.read(path), config_pb2.ConfigProto(), path)
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
