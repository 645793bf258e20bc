"""Savers that model_fn creates inside the TPU computation, rebuilt outside of it."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import get_hook_saver, is_saver_built, reset_saver

v1 = tf.compat.v1


def rebuild_savers_on_host(hooks: Iterable[Any]) -> None:
    """Build, in the default graph, the savers that were built inside the step.

    A session cannot run the ops that such a saver has inside the TPU computation. A rebuilt saver
    keeps its variables and options.

    Args:
      hooks: the model's hooks. A CheckpointSaverHook may have its own saver, which is rebuilt too.
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
