"""tf.contrib.tfprof.model_analyzer: a function that profiles a graph, and options for it."""

from typing import Any

from tensorflow.compat.v1.profiler import ProfileOptionBuilder, Profiler, advise, profile

from trainer.compat import contrib_missing_names

__all__ = [
    "FLOAT_OPS_OPTIONS",
    "PRINT_ALL_TIMING_MEMORY",
    "Profiler",
    "TRAINABLE_VARS_PARAMS_STAT_OPTIONS",
    "advise",
    "print_model_analysis",
    "profile",
]

FLOAT_OPS_OPTIONS = ProfileOptionBuilder.float_operation()
PRINT_ALL_TIMING_MEMORY = ProfileOptionBuilder.time_and_memory()
TRAINABLE_VARS_PARAMS_STAT_OPTIONS = ProfileOptionBuilder.trainable_variables_parameter()


def print_model_analysis(
    graph: Any,
    run_meta: Any = None,
    op_log: Any = None,
    tfprof_cmd: str = "scope",
    tfprof_options: Any = None,
) -> Any:
    """Profile a graph by tf.compat.v1.profiler.profile; print and return the result.

    Args:
      run_meta: a RunMetadata of a traced run, which adds times and memory to the result; None for
        a result without them.
      tfprof_options: what to count and print, such as FLOAT_OPS_OPTIONS of this module, which is
        the default.
    """
    options = tfprof_options or FLOAT_OPS_OPTIONS
    return profile(graph, run_meta=run_meta, op_log=op_log, cmd=tfprof_cmd, options=options)


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.tfprof.model_analyzer", __all__)
