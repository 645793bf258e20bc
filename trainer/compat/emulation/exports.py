"""Exports that a session of the program's own writes."""

import functools
from typing import Any

import tensorflow as tf

from tpuserve import tags as tag_sets
from tpuserve.errors import ExportError
from tpuserve.lowering.func_graph import is_lowered
from trainer.tensorflow_internals import saved_model_builder

MARK = "_refuses_emulated_tpu"


def patch_saved_model_builder() -> None:
    """Has a metagraph for a TPU refused that would hold what was lowered to run here."""
    builder: Any = saved_model_builder.SavedModelBuilder
    if getattr(builder, MARK, False):
        return
    setattr(builder, MARK, True)
    with_variables, without = builder.add_meta_graph_and_variables, builder.add_meta_graph

    @functools.wraps(with_variables)
    def add_meta_graph_and_variables(
        self: Any, sess: Any, tags: Any, *arguments: Any, **named: Any
    ) -> Any:
        _check(sess.graph, tags)
        return with_variables(self, sess, tags, *arguments, **named)

    @functools.wraps(without)
    def add_meta_graph(self: Any, tags: Any, *arguments: Any, **named: Any) -> Any:
        _check(tf.compat.v1.get_default_graph(), tags)
        return without(self, tags, *arguments, **named)

    builder.add_meta_graph_and_variables = add_meta_graph_and_variables
    builder.add_meta_graph = add_meta_graph


def _check(graph: Any, tags: Any) -> None:
    for_tpu = tag_sets.SERVE_TPU - tag_sets.SERVE
    if for_tpu & set(tags or ()) and is_lowered(graph):
        raise ExportError(
            f"a metagraph tagged {tag_sets.format_tags(tags)} is asked for, and its graph holds "
            f"what an emulated TPU runs in place of TPU ops. Export it from a run of the program "
            f"on a TPU, or by export_saved_model of a TPUEstimator."
        )
