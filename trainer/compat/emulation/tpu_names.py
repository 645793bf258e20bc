"""Makes TPUClusterResolver resolve every name of a Cloud TPU to the emulated TPU."""

import functools
import logging
from typing import Any

from tpuserve.devices import find_emulated_tpu_system
from trainer.tensorflow_internals import tpu_cluster_resolver

logger = logging.getLogger("tensorflow.trainer")

# The attribute that marks the constructor of TPUClusterResolver as patched, so that it is not
# patched a second time.
_PATCHED = "_finds_emulated_tpu"
# The TPU name that makes TPUClusterResolver resolve to this machine.
_LOCAL = "local"


def patch_cluster_resolver() -> None:
    """Make TPUClusterResolver resolve every TPU name to this machine while a TPU is emulated."""
    resolver: Any = tpu_cluster_resolver.TPUClusterResolver
    original = resolver.__init__
    if getattr(original, _PATCHED, False):
        return

    @functools.wraps(original)
    def initialize(self: Any, tpu: Any = None, *arguments: Any, **named_arguments: Any) -> None:
        tpu_system = find_emulated_tpu_system()
        if tpu_system is not None and tpu != _LOCAL:
            logger.info("TPUClusterResolver(tpu=%r) resolves to this machine: %s", tpu, tpu_system)
            tpu = _LOCAL
            # Drop the argument coordinator_name, which would add a coordinator task to the cluster.
            # Only TPU workers on other machines need a coordinator. An emulated TPU has no workers.
            named_arguments.pop("coordinator_name", None)
        original(self, tpu, *arguments, **named_arguments)

    setattr(initialize, _PATCHED, True)
    resolver.__init__ = initialize
