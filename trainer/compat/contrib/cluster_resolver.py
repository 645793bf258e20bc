"""tf.contrib.cluster_resolver: TensorFlow's resolvers, and a TPUClusterResolver of tpuserve."""

import json
import logging
import os
from typing import Any

import tensorflow as tf

from tpuserve.errors import TpuNotFound
from trainer.compat import contrib_missing_names

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

# The environment variables that name a TPU if the program does not. The first two contain a name or
# addresses; the last contains JSON with the items "tpu_node_name", "zone" and "project". The first
# variable that names a TPU counts. Source: tensorflow/python/tpu/client/client.py.
_NAMING_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
_CONFIG_VARIABLE = "TPU_CONFIG"


class TPUClusterResolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    """Finds the workers of the TPU that a program names; without a name, selects this machine.

    Programs create the resolver whether or not they use a TPU, and so a missing name is no error.
    The name "local" always selects this machine.

    Args:
      tpu: the TPU's name, its grpc:// address, or a list with one of these. None and "" mean the
        TPU that an environment variable of Google Cloud names, or else this machine.
      more: further keyword arguments for the constructor of the base class,
        tf.distribute.cluster_resolver.TPUClusterResolver.
    """

    def __init__(self, tpu: Any = None, zone: Any = None, project: Any = None, **more: Any) -> None:
        self._tpu_name = _single_name(tpu)
        try:
            if not self._tpu_name:
                self._tpu_name, zone, project = _read_environment(zone, project)
            if self._tpu_name == "local":
                logger.info("TPUClusterResolver(tpu=%r): no TPU is named; using this machine", tpu)
                # Disable the coordinator, a server that TensorFlow would start in this process for
                # TPU workers on other machines.
                more = {**more, "coordinator_name": None}
            super().__init__(self._tpu_name, zone, project, **more)
        except Exception as error:
            raise self._not_found_error(error) from error

    def cluster_spec(self) -> Any:
        """Return the TPU's workers as a tf.train.ClusterSpec; an empty one if no TPU is named."""
        try:
            return super().cluster_spec()
        except Exception as error:
            raise self._not_found_error(error) from error

    def _not_found_error(self, error: Exception) -> TpuNotFound:
        """Return a TpuNotFound that quotes an error of TensorFlow's resolver and adds advice."""
        return TpuNotFound(
            f"TPUClusterResolver(tpu={self._tpu_name!r}): {type(error).__name__}: {error}. Give "
            f"the address of the TPU's first worker (grpc://ADDRESS:8470). To run on this machine, "
            f"leave tpu out or give 'local'; `tpuserve run --emulate-tpu 8` emulates a TPU there."
        )


def replace_tensorflow_resolver() -> None:
    """Replace tf.distribute.cluster_resolver.TPUClusterResolver by the class of this module.

    Programs for TPUEstimator on TensorFlow 2 create a resolver even without a TPU, and TensorFlow's
    class raises a ValueError if no TPU is named.
    """
    for module in (tf.distribute, tf.compat.v1.distribute):
        module.cluster_resolver.TPUClusterResolver = TPUClusterResolver


def _single_name(tpu: Any) -> Any:
    """Return the TPU's name as a string; `tpu` may hold it as bytes or in a list of one element."""
    name = tpu[0] if isinstance(tpu, (list, tuple)) and len(tpu) == 1 else tpu
    return name.decode() if isinstance(name, bytes) else name


def _read_environment(zone: Any, project: Any) -> tuple[str, Any, Any]:
    for variable in _NAMING_VARIABLES:
        if name := os.environ.get(variable):
            return name, zone, project
    config = json.loads(os.environ.get(_CONFIG_VARIABLE) or "{}")
    name = config.get("tpu_node_name") or "local"
    return name, zone or config.get("zone"), project or config.get("project")


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.cluster_resolver", __all__)
