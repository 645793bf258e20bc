"""The private names of Keras 3 and of tf_keras that trainer uses, mostly to convert models.

No other module of trainer imports from `keras.src` or `tf_keras.src`. A new version of Keras can
change private names without notice, so this module lists all of them.
"""

import functools
import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tpuserve import keras_internals
from tpuserve.errors import UnsupportedVersion
from tpuserve.keras_internals import KERAS_3 as KERAS_3
from tpuserve.keras_internals import TF_KERAS as TF_KERAS
from tpuserve.keras_internals import unsupported_keras

_PACKAGE = "trainer"

# The objects that other modules can import from this module: name here → (the Keras module that
# defines the object, its name in the Keras module).
_NAMES: dict[str, tuple[str, str]] = {
    # A thread-local object of tf_keras. Its attribute `generator` is the random generator from
    # which initializers without a seed get their seeds.
    "SEED_GENERATOR": ("tf_keras.src.backend", "_SEED_GENERATOR"),
    "CompileLoss": ("keras.src.trainers.compile_utils", "CompileLoss"),
    # The layer for feature columns that names its variables as input_layer does.
    "DenseFeatures": ("tf_keras.src.feature_column.dense_features", "DenseFeatures"),
    "Functional": ("keras.src.models.functional", "Functional"),
    "LossesContainer": ("tf_keras.src.engine.compile_utils", "LossesContainer"),
    "TFOptimizer": ("tf_keras.src.optimizers.optimizer_v1", "TFOptimizer"),
    "get_keras_mask": ("keras.src.backend", "get_keras_mask"),
    "global_seed_generator": ("keras.src.random.seed_generator", "global_seed_generator"),
    "load_optimizer_weights_from_hdf5_group": (
        "keras.src.legacy.saving.legacy_h5_format",
        "load_optimizer_weights_from_hdf5_group",
    ),
    "set_keras_mask": ("keras.src.backend", "set_keras_mask"),
}
# How trainer calls functions and classes of `_NAMES`: name → (number of positional arguments, names
# of keyword arguments). `check_private_names` checks that the installed Keras accepts them.
_CALLS: dict[str, tuple[int, tuple[str, ...]]] = {
    "CompileLoss": (2, ("reduction", "output_names")),
    "DenseFeatures": (1, ("name",)),
    "LossesContainer": (2, ("output_names", "total_loss_mean")),
    "get_keras_mask": (1, ()),
    "global_seed_generator": (0, ()),
    "load_optimizer_weights_from_hdf5_group": (1, ()),
    "set_keras_mask": (2, ()),
}
# How trainer calls private methods of Keras classes: name of the class → name of the method →
# (number of positional arguments including self, names of keyword arguments).
_METHODS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    "keras.Model": {
        "_compute_loss": (1, ("x", "y", "y_pred", "sample_weight", "training")),
        "_flatten_layers": (1, ()),
    },
    "tf_keras.Model": {"_flatten_layers": (1, ())},
}
# The base classes of layers and of models in tf_keras, each as (module, name): the class for
# TensorFlow 2 → the class for TensorFlow 1, which tf_keras uses while eager execution is off.
_ENGINE_CLASSES = {
    ("tf_keras.src.engine.base_layer", "Layer"): ("tf_keras.src.engine.base_layer_v1", "Layer"),
    ("tf_keras.src.engine.training", "Model"): ("tf_keras.src.engine.training_v1", "Model"),
}
# The prefix of the tf_keras modules that define tf.compat.v1.layers. These layers always have the
# base class for TensorFlow 1, so code that exchanges base classes must skip these modules.
LEGACY_TF_LAYERS = "tf_keras.src.legacy_tf_layers."

# The private attributes of Keras objects that trainer reads: package → kind of object → attributes.
# `check_keras_internals` creates an object of each kind, and checks that it has the attributes.
_OBJECT_ATTRIBUTES: dict[str, dict[str, tuple[str, ...]]] = {
    KERAS_3: {
        "Model": (
            "_call_has_training_arg",
            "_compile_loss",
            "_compile_metrics",
            "_distribute_strategy",
            "_inputs_struct",
            "_jit_compile",
            "_loss_tracker",
        ),
        "Sequential": ("_functional",),
        "Layer": ("_metrics", "_seed_generators"),
        "Optimizer": (
            "_iterations",
            "_learning_rate",
            "_model_variables_moving_average",
            "_trainable_variables",
        ),
        "CompileLoss": ("_flat_losses", "_user_loss", "_user_loss_weights"),
        "CompileMetrics": ("_user_metrics", "_user_weighted_metrics"),
        "KerasTensor": ("_keras_history",),
        "Probabilities": ("_keras_logits",),
    },
    TF_KERAS: {
        "Model": (
            "_distribution_strategy",
            "_is_compiled",
            "_is_graph_network",
            "_jit_compile",
            "_nested_inputs",
            "_nested_outputs",
            "_steps_per_execution",
        ),
        "Layer": ("_dtype_policy", "_metrics", "_random_generator"),
        "RandomGenerator": ("_rng_type",),
        "Optimizer": ("_learning_rate", "_model_variables_moving_average"),
        "Nadam": ("_u_product_counter",),
        "LegacyOptimizer": ("_create_all_weights", "_hyper", "_name"),
        "LossesContainer": ("_losses", "_total_loss_mean", "_user_loss_weights", "_user_losses"),
        "MetricsContainer": ("_user_metrics", "_user_weighted_metrics"),
        "GraphModel": (
            "_collected_trainable_weights",
            "_compile_metrics",
            "_compile_weighted_metrics",
            "_compiled_trainable_state",
            "_is_compiled",
            "_is_graph_network",
            "_make_train_function",
            "_originally_built_as_v1",
            "_per_output_metrics",
            "_per_output_weighted_metrics",
            "_training_endpoints",
        ),
        "GraphLayer": ("_callable_losses",),
        "MeanMetricWrapper": ("_fn", "_fn_kwargs", "_name"),
        "Probabilities": ("_keras_logits",),
        "MaskedTensor": ("_keras_mask",),
    },
}


def __getattr__(name: str) -> Any:
    """Return the private Keras object with a name in `_NAMES`; import its module.

    Python calls this function for a name that this module does not define.
    """
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = _import_name(*_NAMES[name])
    globals()[name] = value
    return value


def get_private_attribute(owner: Any, attribute: str) -> Any:
    """Return a private attribute of a Keras object, or raise an error that explains its absence.

    Args:
      owner: a class of Keras 3 or of tf_keras, a subclass of such a class, or an object of either.

    Raises:
      UnsupportedVersion: the object lacks the attribute; the message names supported versions.
    """
    return keras_internals.get_private_attribute(owner, attribute, _PACKAGE)


def set_private_attribute(owner: Any, attribute: str, value: Any) -> None:
    """Set a private attribute that a Keras object has already.

    Raises:
      UnsupportedVersion: the object lacks the attribute; the message names supported versions.
    """
    get_private_attribute(owner, attribute)
    setattr(owner, attribute, value)


def find_private_attribute(owner: Any, attribute: str, default: Any = None) -> Any:
    """Return a private attribute that only some objects of a kind have.

    The attribute must be in `_OBJECT_ATTRIBUTES`, so that a test checks that Keras still sets it.
    """
    return getattr(owner, attribute, default)


def attach_to_tensor(tensor: Any, attribute: str, value: Any) -> None:
    """Set a private attribute by which Keras passes a value, such as a mask, with a tensor."""
    setattr(tensor, attribute, value)


def get_loaded_engine_classes() -> dict[type, type]:
    """Return the base classes of tf_keras's layers and models, if tf_keras is imported.

    tf_keras has two base classes for layers and two for models.

    Returns:
      Class for TensorFlow 1 → class for TensorFlow 2: one entry for layers and one for models. An
      empty dict if the program has not imported tf_keras.
    """
    paths = [path for pair in _ENGINE_CLASSES.items() for path in pair]
    if any(module not in sys.modules for module, _ in paths):
        return {}
    return {_import_name(*v1): _import_name(*v2) for v2, v1 in _ENGINE_CLASSES.items()}


def check_private_names(package: str) -> None:
    """Check that the installed Keras has the private names and parameters that trainer uses.

    Raises:
      UnsupportedVersion: names or parameters are missing; the message lists them all.
    """
    missing = list(_missing_names(package))
    if missing:
        raise unsupported_keras(package, missing, _PACKAGE)


def check_keras_internals(package: str) -> None:
    """Check the private names and attributes of the installed Keras that trainer uses.

    This function builds models, which advances the package's global name counters and random seeds.

    Raises:
      UnsupportedVersion: names, parameters or attributes are missing; the message lists them all.
    """
    check_private_names(package)
    objects = _make_keras_3_objects() if package == KERAS_3 else _make_tf_keras_objects()
    missing = [
        f"{name}.{attribute}"
        for name, attributes in _OBJECT_ATTRIBUTES[package].items()
        for attribute in attributes
        if not hasattr(objects[name], attribute)
    ]
    if missing:
        raise unsupported_keras(package, missing, _PACKAGE)


def _missing_names(package: str) -> Iterator[str]:
    """Yield the private names that a package lacks, or whose objects have unexpected parameters."""
    for name, path in _NAMES.items():
        if _is_in(package, path[0]):
            yield from _check_name(
                ".".join(path), functools.partial(_import_name, *path), _CALLS.get(name)
            )
    if package == TF_KERAS:
        for path in itertools.chain.from_iterable(_ENGINE_CLASSES.items()):
            yield from _check_name(".".join(path), functools.partial(_import_name, *path), None)
    for class_name, methods in _METHODS.items():
        if _is_in(package, class_name):
            owner = getattr(importlib.import_module(package), class_name.partition(".")[2])
            for method, call in methods.items():
                yield from _check_name(
                    f"{class_name}.{method}",
                    functools.partial(get_private_attribute, owner, method),
                    call,
                )


def _check_name(
    name: str, get_value: Callable[[], Any], call: tuple[int, tuple[str, ...]] | None
) -> Iterator[str]:
    try:
        value = get_value()
    except UnsupportedVersion:
        yield name
        return
    if call is not None:
        num_positional, keywords = call
        try:
            inspect.signature(value).bind(*range(num_positional), **dict.fromkeys(keywords))
        except TypeError as error:
            yield f"{name} ({error})"


def _is_in(package: str, name: str) -> bool:
    return name.partition(".")[0] == package


def _import_name(module_name: str, attribute: str) -> Any:
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        package = module_name.partition(".")[0]
        raise unsupported_keras(package, [f"{module_name}.{attribute}"], _PACKAGE) from error


def _make_keras_3_objects() -> Mapping[str, Any]:
    import keras

    dropout = keras.layers.Dropout(0.5)
    model = keras.Sequential([keras.layers.Input((1,)), dropout, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(use_ema=True), "mse", metrics=["mae"])
    model.train_on_batch(np.zeros([1, 1]), np.zeros([1, 1]))
    functional = get_private_attribute(model, "_functional")
    functional.compile("sgd", "mse", metrics=["mae"])
    return {
        "Model": functional,
        "Sequential": model,
        "Layer": dropout,
        "Optimizer": model.optimizer,
        "CompileLoss": get_private_attribute(model, "_compile_loss"),
        "CompileMetrics": get_private_attribute(model, "_compile_metrics"),
        "KerasTensor": functional.inputs[0],
        "Probabilities": _trace(keras.activations.softmax),
    }


def _make_tf_keras_objects() -> Mapping[str, Any]:
    import tensorflow as tf
    import tf_keras

    def make_model() -> Any:
        layers = tf_keras.layers
        return tf_keras.Sequential([layers.Dropout(0.5, input_shape=(1,)), layers.Dense(1)])

    legacy_optimizer = tf_keras.optimizers.legacy.SGD()
    nadam = tf_keras.optimizers.Nadam()
    nadam.build([tf.Variable(0.0)])
    model = make_model()
    model.compile(tf_keras.optimizers.SGD(use_ema=True), "mse", metrics=["mae"])
    model.train_on_batch(np.zeros([1, 1]), np.zeros([1, 1]))
    with tf.Graph().as_default():
        graph_model = make_model()
        graph_model.compile("sgd", "mse", metrics=["mae"])
    dropout = model.layers[0]
    return {
        "Model": model,
        "Layer": dropout,
        "RandomGenerator": get_private_attribute(dropout, "_random_generator"),
        "Optimizer": model.optimizer,
        "Nadam": nadam,
        "LegacyOptimizer": legacy_optimizer,
        "LossesContainer": model.compiled_loss,
        "MetricsContainer": model.compiled_metrics,
        "GraphModel": graph_model,
        "GraphLayer": graph_model.layers[1],
        "MeanMetricWrapper": tf_keras.metrics.MeanAbsoluteError(),
        "Probabilities": _trace(tf_keras.activations.softmax),
        "MaskedTensor": _trace(tf_keras.layers.Masking()),
    }


def _trace(function: Callable[[Any], Any]) -> Any:
    """Return the result of a function for a tensor with the shape [1, 1, 2] of a new graph."""
    import tensorflow as tf

    with tf.Graph().as_default():
        return function(tf.zeros([1, 1, 2]))
