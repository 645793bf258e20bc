"""tf.contrib.summary: functions that add ops which write summaries to a file.

Programs for TPUs use them in the function `host_call` of a TPUEstimatorSpec. All functions are
those of TensorFlow's module tensorflow.python.ops.summary_ops_v2.
"""

from tensorflow.compat.v1 import Event, Summary, SummaryMetadata
from tensorflow.compat.v1.summary import all_v2_summary_ops as all_summary_ops
from tensorflow.python.ops.summary_ops_v2 import (
    SummaryWriter,
    audio,
    create_file_writer,
    create_noop_writer,
    create_summary_file_writer,
    eval_dir,
    generic,
    histogram,
    image,
    import_event,
    initialize,
    never_record_summaries,
    record_if,
    record_summaries_every_n_global_steps,
    scalar,
    summary_writer_initializer_op,
)
from tensorflow.python.ops.summary_ops_v2 import (
    _legacy_contrib_should_record_summaries as should_record_summaries,
)
from tensorflow.python.ops.summary_ops_v2 import always_record_summaries as always_record_summaries
from tensorflow.python.ops.summary_ops_v2 import graph_v1 as graph
from tensorflow.python.ops.summary_ops_v2 import legacy_raw_flush as flush

from trainer.compat import contrib_missing_names

__all__ = [
    "Event",
    "Summary",
    "SummaryMetadata",
    "SummaryWriter",
    "all_summary_ops",
    "always_record_summaries",
    "audio",
    "create_file_writer",
    "create_noop_writer",
    "create_summary_file_writer",
    "eval_dir",
    "flush",
    "generic",
    "graph",
    "histogram",
    "image",
    "import_event",
    "initialize",
    "never_record_summaries",
    "record_if",
    "record_summaries_every_n_global_steps",
    "scalar",
    "should_record_summaries",
    "summary_writer_initializer_op",
]

__getattr__ = contrib_missing_names.getattr_for("tf.contrib.summary", __all__)
