"""What becomes of a name of TensorFlow that a program says."""

import dataclasses
import functools

from trainer.compat.source import api_names
from trainer.compat.source.api_names import Version
from trainer.compat.source.name_references import Use
from trainer.migration.names import contrib_names, estimator_names, static_index
from trainer.migration.names.classification import WORKS, Kind, Verdict

_PRIVATE = ("compiler", "core", "distribute", "dtensor", "lite", "python", "tools")
_SUPPLIED_INSIDE = {
    "python.pywrap_tensorflow.NewCheckpointReader": (
        "tensorflow.compat.v1.train.NewCheckpointReader"
    ),
}
_PROMISED_NOTHING = "a module inside of TensorFlow, which may change with any version"

# TensorFlow imports it for itself, and deletes it.
_DELETED = "importlib"

_KERAS_ESTIMATOR = "keras.estimator.model_to_estimator"

# What was beside the public names of TensorFlow 1.
_GONE = {
    "examples": (
        "It was a part of the samples, not of the API: read the data with tf.data; MNIST is "
        "tf.keras.datasets.mnist."
    ),
    "keras.utils.multi_gpu_model": "Use TPUEstimator, whose replicas are the cores.",
    "tools.graph_transforms": "Edit the GraphDef, or use tf.graph_util and tf.lite.",
    "models": "The models moved to a repository of their own: pip install tf-models-official.",
}


def judge(use: Use, *, tf1: bool) -> Verdict:
    """What becomes of a name, where it stands.

    Args:
      use: the name.
      tf1: whether the program gets TensorFlow 1's names for `import tensorflow`.
    """
    return _found(dataclasses.replace(use, line=0), tf1)


@functools.cache
def _found(use: Use, tf1: bool) -> Verdict:
    root, _, path = use.name.partition(".")
    if root == "tensorflow_estimator":
        return _estimator_package(path)
    for start, version in (("compat.v1", "v1"), ("compat.v2", "v2")):
        if path == start:
            return WORKS
        if path.startswith(f"{start}."):
            return _public(path[len(start) + 1 :], "v1" if version == "v1" else "v2")
    first = path.partition(".")[0]
    is_of_import = len(use.name.split(".")) != len(use.shown.split("."))
    if first in _PRIVATE and (use.is_import or is_of_import or first == "python"):
        inside = _inside(use, path)
        if inside is not None:
            return inside
    if not path:
        return WORKS
    if first == "compat" or not tf1:
        return _public(path, "v2")
    # The first part decides which module the others are looked for in; version 1 comes first.
    only_v2 = api_names.has(first, "v2") and not api_names.has(first, "v1")
    return _public(path, "v2" if only_v2 else "v1")


def _estimator_package(path: str) -> Verdict:
    for start in ("python.estimator", "estimator", "compat.v1.estimator"):
        if path == start or path.startswith(f"{start}."):
            inside = path[len(start) + 1 :]
            if start == "python.estimator":
                return estimator_names.judge_form(inside)
            return estimator_names.judge(inside, is_v1=True)
    if path in ("", "python", "compat", "compat.v1"):
        return Verdict(Kind.SUPPLIED)
    return contrib_names.unknown(path, ("estimator", "python.estimator", "compat.v1.estimator"))


def _inside(use: Use, path: str) -> Verdict | None:
    """The verdict on a module inside of TensorFlow; None where public names decide."""
    if path in _SUPPLIED_INSIDE:
        return Verdict(Kind.SUPPLIED, _SUPPLIED_INSIDE[path])
    if path.startswith("python.estimator"):
        return estimator_names.judge_form(path[len("python.estimator") + 1 :])
    if path.startswith("python.tpu."):
        form = contrib_names.judge(f"tpu.{path}")
        if form.kind is Kind.SUPPLIED and not static_index.is_inside_tensorflow(use.name):
            return form
    if not use.is_import and len(use.name.split(".")) == len(use.shown.split(".")):
        return Verdict(
            Kind.GONE,
            "TensorFlow hides it as an attribute: write `from tensorflow.python... import`.",
        )
    there = static_index.is_inside_tensorflow(use.name)
    if there is not False:
        return Verdict(Kind.WORKS, _PROMISED_NOTHING)
    if not path.startswith("python"):
        return None
    last = path.rpartition(".")[2]
    return Verdict(
        Kind.GONE,
        f"TensorFlow no longer has it inside. See whether tf.compat.v1 has a public {last}.",
    )


def _public(path: str, version: Version) -> Verdict:
    first, _, rest = path.partition(".")
    if first == "contrib":
        return contrib_names.judge(rest)
    if path == _KERAS_ESTIMATOR:
        return contrib_names.supplied("trainer.compat.keras_estimator", "model_to_estimator")
    if first == "estimator":
        return estimator_names.judge(rest, is_v1=version == "v1")
    for name, says in _GONE.items():
        if path == name or path.startswith(f"{name}."):
            return Verdict(Kind.GONE, says)
    if first.startswith("__"):
        # tf.__version__.split: what it has is its own.
        return WORKS
    if version == "v1":
        path = path.removeprefix("app.") if path.startswith("app.flags") else path
    if first != _DELETED and api_names.has(path, version):
        return WORKS
    module, _, name = path.rpartition(".")
    if module == "tpu.experimental" and version == "v1":
        home = "trainer.compat.embedding_parameters"
        if name in (static_index.public_names(home) or ()):
            return Verdict(Kind.SUPPLIED, home)
    return contrib_names.unknown(name, api_names.near(path, version))
