"""Classifies names of tf.estimator and of the package tensorflow_estimator."""

from trainer.compat.contrib_module_aliases import MODULE_ALIASES
from trainer.compat.imports import estimator_aliases, estimator_finder
from trainer.compat.source import estimator_names
from trainer.compat.source.estimator_names import UNSUPPORTED, Namespaces
from trainer.migration.names import contrib_names, static_index
from trainer.migration.names.classification import NameClassification, NameStatus

_TPU_MODULES = "tpu.python.tpu."


def classify(path: str, *, is_v1: bool) -> NameClassification:
    """Classify a name of tf.estimator: whether tpuserve supplies it.

    Args:
      path: the dotted path below tf.estimator, such as "tpu.TPUEstimator"; "" for tf.estimator
        itself.
      is_v1: whether the program uses tf.estimator of TensorFlow 1. TensorFlow 2's tf.estimator has
        fewer names.
    """
    first = path.partition(".")[0]
    if not is_v1 and first in estimator_names.V1.keys() - estimator_names.V2.keys():
        return NameClassification(
            NameStatus.GONE, f"Use tf.compat.v1.estimator.{first}, or run the program with --tf1."
        )
    return _classify_in(estimator_names.V1 if is_v1 else estimator_names.V2, path)


def classify_module_path(path: str) -> NameClassification:
    """Classify a module of tensorflow_estimator, or a name in it: whether tpuserve supplies it.

    Args:
      path: the dotted path below tensorflow_estimator.python.estimator, such as
        "tpu.tpu_estimator.TPUEstimator".
    """
    if path == "tpu":
        return NameClassification(NameStatus.SUPPLIED)
    if path.startswith("tpu."):
        module_name, _, inner_path = path.removeprefix("tpu.").partition(".")
        module = MODULE_ALIASES.get(f"{_TPU_MODULES}{module_name}")
        if module is not None:
            return contrib_names.classify_in_module(
                module, inner_path, f"tensorflow_estimator.{path}"
            )
    if estimator_finder.is_canned_module(path):
        name = f"{estimator_aliases.ROOTS[0]}.{path}"
        if static_index.is_inside_tensorflow(name) is False:
            return NameClassification(NameStatus.UNKNOWN)
        return NameClassification(NameStatus.SUPPLIED, name)
    return _classify_in(estimator_aliases.MODULES, path)


def _classify_in(namespaces: Namespaces, path: str) -> NameClassification:
    if path in namespaces:
        return NameClassification(NameStatus.SUPPLIED)
    parts = path.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts))]
    namespace = max((prefix for prefix in prefixes if prefix in namespaces), key=len)
    name = parts[namespace.count(".") + 1 if namespace else 0]
    if name in namespaces[namespace]:
        module, _, attribute = namespaces[namespace][name].partition(":")
        return (
            contrib_names.classify_supplied(module, attribute)
            if attribute
            else NameClassification(NameStatus.SUPPLIED)
        )
    for gone in (f"{namespace}.{name}".lstrip("."), path, name):
        if gone in UNSUPPORTED:
            return NameClassification(NameStatus.GONE, UNSUPPORTED[gone])
    prefix = f"{namespace}." if namespace else ""
    nested = [
        known.removeprefix(prefix)
        for known in (*namespaces, *UNSUPPORTED)
        if known.startswith(prefix)
    ]
    return contrib_names.classify_unknown(name, [*namespaces[namespace], *filter(None, nested)])
