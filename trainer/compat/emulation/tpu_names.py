"""The names that programs give a Cloud TPU, all of which mean the emulated one."""

import functools
import logging
from typing import Any

from tpuserve.devices import find_tpu_system
from trainer.tensorflow_internals import tpu_cluster_resolver

logger = logging.getLogger("tensorflow.trainer")

_MARK = "_finds_emulated_tpu"
_THIS_MACHINE = "local"


def patch_cluster_resolver() -> None:
    """Has every name that a resolver is asked for be this machine's, where the TPU is emulated."""
    resolver: Any = tpu_cluster_resolver.TPUClusterResolver
    original = resolver.__init__
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def initialise(self: Any, tpu: Any = None, *arguments: Any, **named: Any) -> None:
        hardware = find_tpu_system()
        if hardware.is_emulated and tpu != _THIS_MACHINE:
            logger.info("TPUClusterResolver(tpu=%r): it is this machine's %s", tpu, hardware)
            tpu = _THIS_MACHINE
            # Its server is for workers elsewhere; here it would find no address.
            named.pop("coordinator_name", None)
        original(self, tpu, *arguments, **named)

    setattr(initialise, _MARK, True)
    resolver.__init__ = initialise
