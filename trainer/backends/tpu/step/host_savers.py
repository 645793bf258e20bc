"""Savers that model_fn makes, which save from outside of the computation."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from trainer.tensorflow_internals import get_hook_saver, is_saver_built, reset_saver

v1 = tf.compat.v1


def rebuild_savers_on_host(hooks: Iterable[Any]) -> None:
    """Builds anew, in the default graph, the savers that were built inside of the step.

    What a step has inside is not to be run from outside. A saver keeps its variables and options.

    Args:
      hooks: of model_fn; those that save may have a saver of their own.
    """
    graph = v1.get_default_graph()
    own = [get_hook_saver(hook) for hook in hooks if isinstance(hook, v1.train.CheckpointSaverHook)]
    for saver in {id(each): each for each in (*own, *_collected(graph))}.values():
        if isinstance(saver, v1.train.Saver) and is_saver_built(saver) and not _is_of(saver, graph):
            reset_saver(saver)
            saver.build()


def _collected(graph: Any) -> list[Any]:
    return list(graph.get_collection(v1.GraphKeys.SAVERS))


def _is_of(saver: Any, graph: Any) -> bool:
    try:
        graph.as_graph_element(saver.saver_def.filename_tensor_name)
    except KeyError:
        return False
    return True
