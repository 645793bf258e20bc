"""Adds tf.estimator, tf.contrib and other symbols of TensorFlow 1 to TensorFlow's modules."""

import difflib
import importlib
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tpuserve.devices import EMULATION_VARIABLE
from trainer.compat import moved_names
from trainer.compat.imports.module_proxy import TensorFlow1Proxy
from trainer.compat.source import estimator_names
from trainer.embedding import optimization_parameters


class LazyModule(ModuleType):
    """A module whose names are defined in other modules, and are imported when they are first used.

    Attributes:
      display_name: the name by which programs refer to the module, such as "tf.estimator".

    Args:
      targets: name → import target. The target "module:attribute" is an attribute of a module,
        as in a Python entry point. The target "module:" is a module itself.
      unsupported: name that the module does not have → a sentence for the error message, which
        says what replaces the name.
    """

    def __init__(
        self,
        name: str,
        display_name: str,
        targets: Mapping[str, str],
        unsupported: Mapping[str, str],
    ) -> None:
        super().__init__(name, f"{display_name}, supplied by tpuserve.")
        self.display_name = display_name
        self._targets, self._unsupported = dict(targets), unsupported
        # Set a __path__, because Python imports submodules only from modules that have one.
        self.__path__: list[str] = []
        self.__all__ = sorted(targets)
        sys.modules[name] = self

    def add_submodule(self, name: str, submodule: ModuleType) -> None:
        """Add a submodule, so that programs can use it as an attribute of this module."""
        setattr(self, name, submodule)
        self.__all__ = sorted({*self.__all__, name})

    def __getattr__(self, name: str) -> Any:
        target = self._targets.get(name)
        if target is None:
            raise AttributeError(self._missing_name_message(name))
        value = _import_target(target)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return list(self.__all__)

    def _missing_name_message(self, name: str) -> str:
        if name in self._unsupported:
            return f"{self.display_name}.{name} is not supplied. {self._unsupported[name]}"
        message = f"module {self.display_name!r} has no attribute {name!r}"
        matches = difflib.get_close_matches(name, self.__all__, n=3)
        return f"{message}. Did you mean {' or '.join(matches)}?" if matches else f"{message}."


def register_lazy_modules(
    name: str,
    display_name: str,
    namespaces: Mapping[str, Mapping[str, str]],
    unsupported: Mapping[str, str],
) -> LazyModule:
    """Create a `LazyModule` with submodules, which are lazy too, and register all in sys.modules.

    Args:
      namespaces: maps the dotted path of a module below the root, "" for the root, to a dict of the
        module's names → import targets, as in `LazyModule`. Parents come before their submodules.
      unsupported: maps the dotted path of a name below the root to a sentence for the error
        message, which says what replaces the name.
    """
    modules: dict[str, LazyModule] = {}
    for path, targets in namespaces.items():
        prefix = f"{path}." if path else ""
        unsupported_in_module = {
            unsupported_path[len(prefix) :]: replacement
            for unsupported_path, replacement in unsupported.items()
            if unsupported_path.startswith(prefix) and "." not in unsupported_path[len(prefix) :]
        }
        suffix = f".{path}" if path else ""
        modules[path] = LazyModule(
            f"{name}{suffix}", f"{display_name}{suffix}", targets, unsupported_in_module
        )
        if path:
            parent, _, last = path.rpartition(".")
            modules[parent].add_submodule(last, modules[path])
    return modules[""]


_V1 = "tensorflow.compat.v1"


def register_estimator_modules() -> None:
    """Create tf.estimator and tf.compat.v1.estimator as modules that can be imported."""
    v1_only = {
        name: f"Name tf.compat.v1.estimator.{name}, or run the program with --tf1."
        for name in estimator_names.V1.keys() - estimator_names.V2.keys()
    }
    unsupported = estimator_names.UNSUPPORTED
    register_lazy_modules(
        "tensorflow.estimator",
        "tf.estimator",
        estimator_names.V2,
        {**unsupported, **v1_only},
    )
    register_lazy_modules(f"{_V1}.estimator", "tf.estimator", estimator_names.V1, unsupported)


def add_names_to_tensorflow(*, replaces_resolver: bool) -> None:
    """Add tf.estimator, tf.contrib and other removed symbols to TensorFlow's own modules.

    The other symbols are the classes for the optimization parameters of TPU embedding tables.

    Args:
      replaces_resolver: whether to replace TensorFlow's TPUClusterResolver by tpuserve's class,
        which selects this machine if the program names no TPU.
    """
    tensorflow: Any = sys.modules["tensorflow"]
    v1, v2 = tensorflow.compat.v1, tensorflow.compat.v2
    contrib = import_contrib()
    # Add the names also to the nested modules tf.compat.v1.compat.v1, tf.compat.v2.compat.v1 and so
    # on, which are module objects of their own.
    for module in (v1, v1.compat.v1, v2.compat.v1):
        module.estimator = sys.modules[f"{_V1}.estimator"]
        module.contrib = contrib
    for module in (tensorflow, v2, v1.compat.v2, v2.compat.v2):
        module.estimator = sys.modules["tensorflow.estimator"]
        module.contrib = contrib
    for name in optimization_parameters.__all__:
        if not hasattr(v1.tpu.experimental, name):
            setattr(v1.tpu.experimental, name, getattr(optimization_parameters, name))
    if replaces_resolver or os.environ.get(EMULATION_VARIABLE):
        # Replace TensorFlow's TPUClusterResolver, which raises an error if the program names no
        # TPU, and which cannot find an emulated TPU.
        cluster_resolver = importlib.import_module("trainer.compat.contrib.cluster_resolver")
        cluster_resolver.replace_tensorflow_resolver()
    # Register tf.compat.v1.tpu and its submodule `experimental` in sys.modules. Otherwise `import
    # tensorflow.compat.v1.tpu` would load second copies, without the added names.
    sys.modules.setdefault(f"{_V1}.tpu", v1.tpu)
    sys.modules.setdefault(f"{_V1}.tpu.experimental", v1.tpu.experimental)


def supply_moved_names() -> None:
    """Restore names that TensorFlow has moved out of modules that are imported already."""
    for name in moved_names.NAMES:
        if name in sys.modules:
            restore_moved_names(sys.modules[name])


def restore_moved_names(module: ModuleType) -> None:
    """Let a private module of TensorFlow find the names that TensorFlow has moved out of it."""
    targets, find_other = moved_names.NAMES[module.__name__], getattr(module, "__getattr__", None)

    def __getattr__(name: str) -> Any:
        if name in targets:
            value = _import_target(targets[name])
            setattr(module, name, value)
            return value
        if find_other is not None:
            return find_other(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = __getattr__  # type: ignore[method-assign]


def _import_target(target: str) -> Any:
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    return getattr(module, attribute) if attribute else module


def enable_tf1() -> TensorFlow1Proxy:
    """Switch TensorFlow to version 1's behaviour, and return a stand-in for the module tensorflow.

    Programs for TensorFlow 1 get the stand-in, which has the symbols of both TensorFlow versions,
    when they import tensorflow.
    """
    from trainer.tensorflow_internals import deprecation

    tensorflow: Any = sys.modules["tensorflow"]
    with deprecation.silence():
        tensorflow.compat.v1.disable_v2_behavior()
    return make_tf1_proxy()


def make_tf1_proxy() -> TensorFlow1Proxy:
    """Return a module with the symbols of TensorFlow 1, but leave TensorFlow's behaviour unchanged.

    TensorFlow must be imported before this call.
    """
    from trainer.tensorflow_internals import module_wrapper, pywrap_tensorflow

    tensorflow: Any = sys.modules["tensorflow"]
    # Suppress the warnings by which TensorFlow advises programs to replace symbols of TensorFlow 1.
    module_wrapper._PER_MODULE_WARNING_LIMIT = 0
    # Supply pywrap_tensorflow.NewCheckpointReader, by which TensorFlow 1 programs read checkpoints.
    pywrap_tensorflow.NewCheckpointReader = tensorflow.compat.v1.train.NewCheckpointReader
    return TensorFlow1Proxy(tensorflow, import_contrib())


def import_contrib() -> ModuleType:
    """Import and return the module that becomes tf.contrib."""
    return importlib.import_module("trainer.compat.contrib")
