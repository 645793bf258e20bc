"""Rebuilds the Savers that model_fn creates, because their ops are inside the TPU computation."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import get_hook_saver, is_saver_built, reset_saver

v1 = tf.compat.v1


def rebuild_savers_on_host(hooks: Iterable[Any]) -> None:
    """Rebuild, in the default graph, the ops of Savers that model_fn has built in a TPU step.

    The Savers in the collection SAVERS and in hooks are rebuilt, with the same variables and
    options, because a session cannot run their ops inside the TPU computation.
    """
    graph = v1.get_default_graph()
    hook_savers = [
        get_hook_saver(hook) for hook in hooks if isinstance(hook, v1.train.CheckpointSaverHook)
    ]
    collected_savers = graph.get_collection(v1.GraphKeys.SAVERS)
    for saver in {id(saver): saver for saver in (*hook_savers, *collected_savers)}.values():
        if isinstance(saver, v1.train.Saver) and is_saver_built(saver) and not _is_in(graph, saver):
            reset_saver(saver)
            saver.build()


def _is_in(graph: Any, saver: Any) -> bool:
    try:
        graph.as_graph_element(saver.saver_def.filename_tensor_name)
    except KeyError:
        return False
    return True
