"""tf.contrib.cluster_resolver: TensorFlow's own, and a TPU's that also knows this machine."""

import logging
import os
from typing import Any

import tensorflow as tf

from tpuserve.errors import TpuNotFound
from trainer.compat.contrib_names import missing_names

__all__ = [
    "ClusterResolver",
    "GCEClusterResolver",
    "GceClusterResolver",
    "KubernetesClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionClusterResolver",
]

logger = logging.getLogger("tensorflow.trainer")

_tensorflows = tf.distribute.cluster_resolver

ClusterResolver = _tensorflows.ClusterResolver
GCEClusterResolver = GceClusterResolver = _tensorflows.GCEClusterResolver
KubernetesClusterResolver = _tensorflows.KubernetesClusterResolver
SimpleClusterResolver = _tensorflows.SimpleClusterResolver
SlurmClusterResolver = _tensorflows.SlurmClusterResolver
TFConfigClusterResolver = _tensorflows.TFConfigClusterResolver
UnionClusterResolver = _tensorflows.UnionResolver

# Where TensorFlow's own looks for a TPU that the program does not name.
_NAMING_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG")


class TPUClusterResolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    """A TPU's workers by its name or address; without one, this machine.

    Programs make it whether or not they go on to use a TPU. So no name, '' and 'local' all mean
    this process: its session target is '', its cluster empty, and whether there is a TPU, a real
    or an emulated one, is TPUEstimator's to find.
    """

    def __init__(self, tpu: Any = None, zone: Any = None, project: Any = None, **more: Any) -> None:
        """Finds where the TPU is asked for.

        Args:
          tpu: name or grpc:// address, or a list of one; None, '' or 'local' for this machine,
            unless the environment names a TPU as Google's platforms do.
          zone, project: where a named TPU is looked for.
          more: as in TensorFlow's own; this machine needs no coordinator.

        Raises:
          TpuNotFound: nothing can be known of a TPU of that name.
        """
        self._asked = _only(tpu)
        name = self._asked or None
        if name is None and not any(os.environ.get(each) for each in _NAMING_VARIABLES):
            name = "local"
        if name == "local":
            logger.info("TPUClusterResolver(tpu=%r): no TPU is named, so it is this machine", tpu)
            # The server of a coordinator is for workers elsewhere; here it would find no address.
            more = {**more, "coordinator_name": None}
        try:
            super().__init__(name, zone, project, **more)
        except Exception as error:
            raise self._not_found(error) from error

    def cluster_spec(self) -> Any:
        """The TPU's workers; an empty tf.train.ClusterSpec on this machine.

        Raises:
          TpuNotFound: nothing can be known of a TPU of that name.
        """
        try:
            return super().cluster_spec()
        except Exception as error:
            raise self._not_found(error) from error

    def _not_found(self, error: Exception) -> TpuNotFound:
        return TpuNotFound(
            f"TPUClusterResolver(tpu={self._asked!r}): {type(error).__name__}: {error}. Give the "
            f"address of its first worker, grpc://ADDRESS:8470, or leave tpu out or give 'local' "
            f"to run on this machine; `tpuserve run --emulate-tpu 8` gives it a TPU."
        )


def replace_tensorflows() -> None:
    """Has tf.distribute.cluster_resolver.TPUClusterResolver be ours.

    Programs for TPUEstimator on TensorFlow 2 make it so. TensorFlow's own raises a ValueError
    where no TPU is named, which some programs for distribution strategies go by.
    """
    for module in (tf.distribute, tf.compat.v1.distribute):
        module.cluster_resolver.TPUClusterResolver = TPUClusterResolver


def _only(tpu: Any) -> Any:
    name = tpu[0] if isinstance(tpu, (list, tuple)) and len(tpu) == 1 else tpu
    return name.decode() if isinstance(name, bytes) else name


__getattr__ = missing_names.of("tf.contrib.cluster_resolver", __all__)
