"""Makes an export for a real TPU fail if the graph was built for an emulated TPU.

The TPU ops of such a graph have been replaced by ops for the CPU.
"""

import functools
from typing import Any

import tensorflow as tf

from tpuserve import tags as tag_sets
from tpuserve.errors import ExportError
from tpuserve.lowering.func_graph import is_lowered
from trainer.tensorflow_internals import saved_model_builder

# The attribute that marks SavedModelBuilder as patched, so that it is not patched a second time.
PATCHED = "_refuses_emulated_tpu"


def patch_saved_model_builder() -> None:
    """Make SavedModelBuilder refuse a metagraph tagged "tpu" that was built for an emulated TPU.

    The graph of this metagraph has no TPU ops, so it would not run on a TPU.
    """
    builder: Any = saved_model_builder.SavedModelBuilder
    if getattr(builder, PATCHED, False):
        return
    setattr(builder, PATCHED, True)
    original_with_variables = builder.add_meta_graph_and_variables
    original = builder.add_meta_graph

    @functools.wraps(original_with_variables)
    def add_meta_graph_and_variables(
        self: Any, sess: Any, tags: Any, *arguments: Any, **named_arguments: Any
    ) -> Any:
        _check_not_lowered_for_tpu(sess.graph, tags)
        return original_with_variables(self, sess, tags, *arguments, **named_arguments)

    @functools.wraps(original)
    def add_meta_graph(self: Any, tags: Any, *arguments: Any, **named_arguments: Any) -> Any:
        _check_not_lowered_for_tpu(tf.compat.v1.get_default_graph(), tags)
        return original(self, tags, *arguments, **named_arguments)

    builder.add_meta_graph_and_variables = add_meta_graph_and_variables
    builder.add_meta_graph = add_meta_graph


def _check_not_lowered_for_tpu(graph: Any, tags: Any) -> None:
    tpu_tags = tag_sets.SERVE_TPU - tag_sets.SERVE
    if tpu_tags & set(tags or ()) and is_lowered(graph):
        raise ExportError(
            f"cannot write a metagraph tagged {tag_sets.format_tags(tags)}: the graph was lowered "
            f"for an emulated TPU and has no TPU ops. Export from a run of the program on a TPU, "
            f"or use export_saved_model of a TPUEstimator."
        )
