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

_tf_resolvers = tf.distribute.cluster_resolver

ClusterResolver = _tf_resolvers.ClusterResolver
GCEClusterResolver = GceClusterResolver = _tf_resolvers.GCEClusterResolver
KubernetesClusterResolver = _tf_resolvers.KubernetesClusterResolver
SimpleClusterResolver = _tf_resolvers.SimpleClusterResolver
SlurmClusterResolver = _tf_resolvers.SlurmClusterResolver
TFConfigClusterResolver = _tf_resolvers.TFConfigClusterResolver
UnionClusterResolver = _tf_resolvers.UnionResolver

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
        self._tpu_name = _single_name(tpu)
        name = self._tpu_name or None
        if name is None and not any(os.environ.get(each) for each in _NAMING_VARIABLES):
            name = "local"
        if name == "local":
            logger.info("TPUClusterResolver(tpu=%r): no TPU is named, so it is this machine", tpu)
            # The server of a coordinator is for workers elsewhere; here it would find no address.
            more = {**more, "coordinator_name": None}
        try:
            super().__init__(name, zone, project, **more)
        except Exception as error:
            raise self._not_found_error(error) from error

    def cluster_spec(self) -> Any:
        """The TPU's workers; an empty tf.train.ClusterSpec on this machine.

        Raises:
          TpuNotFound: nothing can be known of a TPU of that name.
        """
        try:
            return super().cluster_spec()
        except Exception as error:
            raise self._not_found_error(error) from error

    def _not_found_error(self, error: Exception) -> TpuNotFound:
        return TpuNotFound(
            f"TPUClusterResolver(tpu={self._tpu_name!r}): {type(error).__name__}: {error}. Give "
            f"the address of the TPU's first worker (grpc://ADDRESS:8470). To run on this machine, "
            f"leave tpu out or give 'local'; `tpuserve run --emulate-tpu 8` emulates a TPU there."
        )


def replace_tensorflow_resolver() -> None:
    """Has tf.distribute.cluster_resolver.TPUClusterResolver be ours.

    Programs for TPUEstimator on TensorFlow 2 make it so. TensorFlow's own raises a ValueError
    where no TPU is named, which some programs for distribution strategies go by.
    """
    for module in (tf.distribute, tf.compat.v1.distribute):
        module.cluster_resolver.TPUClusterResolver = TPUClusterResolver


def _single_name(tpu: Any) -> Any:
    name = tpu[0] if isinstance(tpu, (list, tuple)) and len(tpu) == 1 else tpu
    return name.decode() if isinstance(name, bytes) else name


__getattr__ = missing_names.getattr_for("tf.contrib.cluster_resolver", __all__)
