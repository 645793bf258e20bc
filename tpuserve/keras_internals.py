"""Gives access to the private attributes of Keras 3 and of tf_keras that tpuserve uses.

A new version of Keras may change private names without notice.

Importing this module imports neither Keras 3 nor tf_keras.
"""

import importlib.metadata
from collections.abc import Iterable
from typing import Any

from tpuserve.errors import UnsupportedVersion

KERAS_3 = "keras"
TF_KERAS = "tf_keras"

_SUPPORTED = {KERAS_3: "keras>=3.10,<3.16", TF_KERAS: "tf-keras>=2.20.1,<2.22"}
_DISTRIBUTIONS = {KERAS_3: "keras", TF_KERAS: "tf-keras"}

# The private attributes of Keras objects that tpuserve reads: package → public name of a class of
# the package → attributes of its objects. Tests check that the installed Keras has them.
_OBJECT_ATTRIBUTES: dict[str, dict[str, tuple[str, ...]]] = {
    KERAS_3: {"layers.Layer": ("_call_has_training_arg",), "Sequential": ("_functional",)},
    TF_KERAS: {"layers.Layer": ("_expects_training_arg",)},
}


def takes_training(layer: Any) -> bool:
    """Return whether `call` of a layer or model of Keras has a parameter `training`."""
    if not hasattr(layer, "built"):
        # The layer has no attribute `built`, because its class does not call super().__init__().
        # Keras reports this mistake when the layer is called.
        return True
    is_keras_3 = _get_package(type(layer)) == KERAS_3
    attribute = "_call_has_training_arg" if is_keras_3 else "_expects_training_arg"
    return bool(get_private_attribute(layer, attribute))


def get_functional_model(sequential: Any) -> Any:
    """Return the functional model inside a keras.Sequential; None if the model is not built."""
    return get_private_attribute(sequential, "_functional")


def get_private_attribute(owner: Any, attribute: str, package: str = "tpuserve") -> Any:
    """Return a private attribute of a Keras object, or raise an error that explains its absence.

    Args:
      owner: an object or a class of Keras 3 or of tf_keras, or of a class derived from one.

    Raises:
      UnsupportedVersion: the object lacks the attribute; the message names supported versions.
    """
    try:
        return getattr(owner, attribute)
    except AttributeError as error:
        kind = owner if isinstance(owner, type) else type(owner)
        name = f"{kind.__name__}.{attribute}"
        raise unsupported_keras(_get_package(kind), [name], package) from error


def unsupported_keras(
    keras_package: str, names: Iterable[str], package: str = "tpuserve"
) -> UnsupportedVersion:
    """Create the error that reports private names that the installed Keras lacks."""
    try:
        version = importlib.metadata.version(_DISTRIBUTIONS[keras_package])
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return UnsupportedVersion(
        f"{keras_package} {version} lacks private names that {package} uses: {', '.join(names)}. "
        f"Install a supported version: {_SUPPORTED[keras_package]}."
    )


def _get_package(kind: type) -> str:
    """Return the package, `KERAS_3` or `TF_KERAS`, from which a class is derived."""
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return TF_KERAS if TF_KERAS in packages else KERAS_3
