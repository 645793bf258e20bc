"""Sessions as each mode wants them."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.config import RunConfig
from trainer.runs import Place


def config_proto(config: RunConfig) -> Any:
    """The ConfigProto of a run: the user's, else one that lets ops without a GPU kernel run.

    The graph is optimized once over, not twice: the second time costs a start more than it gains.
    """
    if config.session_config is not None:
        return config.session_config
    proto = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    options = proto.graph_options.rewrite_options
    options.meta_optimizer_iterations = options.ONE
    return proto


def monitored(
    config: RunConfig,
    place: Place,
    scaffold: Any,
    hooks: Sequence[Any],
    *,
    checkpoint_dir: str | None = None,
    checkpoint_path: str | None = None,
) -> Any:
    """A MonitoredSession that restores a checkpoint, if there is one, and drives hooks.

    Args:
      config: gives the ConfigProto.
      place: where it runs.
      scaffold: gives the saver and the initialisation ops.
      hooks: called in this order.
      checkpoint_dir: restore the newest checkpoint from here.
      checkpoint_path: restore just this checkpoint.
    """
    creator = tf.compat.v1.train.ChiefSessionCreator(
        scaffold,
        master=place.master,
        config=place.session_config(config_proto(config)),
        checkpoint_dir=checkpoint_dir,
        checkpoint_filename_with_path=checkpoint_path,
    )
    return tf.compat.v1.train.MonitoredSession(creator, hooks=list(hooks))
