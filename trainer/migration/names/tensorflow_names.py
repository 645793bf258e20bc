"""Classifies TensorFlow names that a program uses: as working, supplied, gone or unknown."""

import functools
import re

from trainer.compat import moved_names
from trainer.compat.source import api_names
from trainer.compat.source.api_names import Version
from trainer.compat.source.name_references import NameReference
from trainer.migration.names import contrib_names, estimator_names, static_index
from trainer.migration.names.classification import WORKS, NameClassification, NameStatus

_PRIVATE = ("compiler", "core", "distribute", "dtensor", "lite", "python", "tools")
_SUPPLIED_INSIDE = {
    "python.pywrap_tensorflow.NewCheckpointReader": (
        "tensorflow.compat.v1.train.NewCheckpointReader"
    ),
    **{
        f"{module}.{name}".partition(".")[2]: target.replace(":", ".")
        for module, targets in moved_names.NAMES.items()
        for name, target in targets.items()
    },
}
# Matches names such as __dict__, which the lists of public names leave out, and what follows them.
_SPECIAL_NAME = re.compile(r"\.__\w.*")
_PRIVATE_MODULE = "a private module of TensorFlow, which may change with any version"

# The name of a module that TensorFlow's __init__.py imports for its own use and then deletes.
# `api_names` finds the import but not the deletion, and therefore lists the name as public.
_DELETED = "importlib"

_KERAS_ESTIMATOR = "keras.estimator.model_to_estimator"

# Names that TensorFlow 1 had in `tf`, but that tf.compat.v1 lacks: dotted path below `tf` → a
# sentence for the report, which says what to use instead.
_GONE = {
    "examples": (
        "This was part of the samples and not of the API: read the data with tf.data; MNIST is "
        "tf.keras.datasets.mnist."
    ),
    "keras.utils.multi_gpu_model": "Use TPUEstimator, whose replicas are the cores.",
    "tools.graph_transforms": "Edit the GraphDef, or use tf.graph_util and tf.lite.",
    "models": "The models moved to a repository of their own: pip install tf-models-official.",
}


def classify(use: NameReference, *, tf1: bool) -> NameClassification:
    """Return whether a TensorFlow name that a program uses still exists, with an explanation.

    Args:
      tf1: whether `import tensorflow` gives the program TensorFlow 1's names.
    """
    name, written_name = (_SPECIAL_NAME.sub("", each) for each in (use.name, use.written_name))
    return _classify_cached(NameReference(0, name, written_name, use.is_import), tf1)


@functools.cache
def _classify_cached(use: NameReference, tf1: bool) -> NameClassification:
    root, _, path = use.name.partition(".")
    if root == "tensorflow_estimator":
        return _classify_estimator_package(path)
    for start, version in (("compat.v1", "v1"), ("compat.v2", "v2")):
        if path == start:
            return WORKS
        if path.startswith(f"{start}."):
            return _classify_public(path[len(start) + 1 :], "v1" if version == "v1" else "v2")
    first = path.partition(".")[0]
    is_of_import = len(use.name.split(".")) != len(use.written_name.split("."))
    if first in _PRIVATE and (use.is_import or is_of_import or first == "python"):
        status = _classify_private(use, path)
        if status is not None:
            return status
    if not path:
        return WORKS
    if first == "compat" or not tf1:
        return _classify_public(path, "v2")
    # Look the name up in TensorFlow 1's API. If only TensorFlow 2 has the first part of the name,
    # look it up in TensorFlow 2's API: the program's `tf` has the symbols of both.
    only_v2 = api_names.is_public_name(first, "v2") and not api_names.is_public_name(first, "v1")
    return _classify_public(path, "v2" if only_v2 else "v1")


def _classify_estimator_package(path: str) -> NameClassification:
    for start in ("python.estimator", "estimator", "compat.v1.estimator"):
        if path == start or path.startswith(f"{start}."):
            inner_path = path[len(start) + 1 :]
            if start == "python.estimator":
                return estimator_names.classify_module_path(inner_path)
            return estimator_names.classify(inner_path, is_v1=True)
    if path in ("", "python", "compat", "compat.v1"):
        return NameClassification(NameStatus.SUPPLIED)
    return contrib_names.classify_unknown(
        path, ("estimator", "python.estimator", "compat.v1.estimator")
    )


def _classify_private(use: NameReference, path: str) -> NameClassification | None:
    """Classify a name in a private module of TensorFlow, such as tensorflow.python."""
    if path in _SUPPLIED_INSIDE:
        return NameClassification(NameStatus.SUPPLIED, _SUPPLIED_INSIDE[path])
    moved = [module for module in moved_names.MODULES if f"{use.name}.".startswith(f"{module}.")]
    if moved:
        return NameClassification(NameStatus.SUPPLIED, moved_names.MODULES[max(moved, key=len)])
    if path.startswith("python.estimator"):
        return estimator_names.classify_module_path(path[len("python.estimator") + 1 :])
    if path.startswith("python.tpu."):
        status = contrib_names.classify(f"tpu.{path}")
        if status.kind is NameStatus.SUPPLIED and not static_index.is_inside_tensorflow(use.name):
            return status
    if not use.is_import and len(use.name.split(".")) == len(use.written_name.split(".")):
        return NameClassification(
            NameStatus.GONE,
            "This attribute is not accessible: write `from tensorflow.python... import`.",
        )
    exists = static_index.is_inside_tensorflow(use.name)
    if exists is not False:
        return NameClassification(NameStatus.WORKS, _PRIVATE_MODULE)
    if not path.startswith("python"):
        return None
    last = path.rpartition(".")[2]
    return NameClassification(
        NameStatus.GONE,
        f"TensorFlow no longer has this private name. Check whether tf.compat.v1 has a public "
        f"{last}.",
    )


def _classify_public(path: str, version: Version) -> NameClassification:
    first, _, rest = path.partition(".")
    if first == "contrib":
        return contrib_names.classify(rest)
    if path == _KERAS_ESTIMATOR:
        return contrib_names.classify_supplied(
            "trainer.compat.keras_estimator", "model_to_estimator"
        )
    if first == "estimator":
        return estimator_names.classify(rest, is_v1=version == "v1")
    for name, says in _GONE.items():
        if path == name or path.startswith(f"{name}."):
            return NameClassification(NameStatus.GONE, says)
    if version == "v1":
        path = path.removeprefix("app.") if path.startswith("app.flags") else path
    if first != _DELETED and api_names.is_public_name(path, version):
        return WORKS
    module, _, name = path.rpartition(".")
    if module == "tpu.experimental" and version == "v1":
        home = "trainer.embedding.optimization_parameters"
        if name in (static_index.public_names(home) or ()):
            return NameClassification(NameStatus.SUPPLIED, home)
    return contrib_names.classify_unknown(name, api_names.list_sibling_names(path, version))
