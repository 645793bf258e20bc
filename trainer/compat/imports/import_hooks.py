"""Hooks into Python's import system, which supply the modules that old programs import.

`ImportHook`, a finder on sys.meta_path, supplies modules to all importing modules alike.
`ProgramImportFunction` replaces builtins.__import__, and treats import statements of the program
and of libraries differently.
"""

import builtins
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from trainer.compat import contrib_missing_names, contrib_module_aliases, moved_names, removed_names
from trainer.compat.imports import install_names, override_shims
from trainer.compat.imports.alias_loader import make_alias_spec
from trainer.compat.imports.install_names import LazyModule
from trainer.compat.imports.module_proxy import TensorFlow1Proxy
from trainer.compat.source import user_program
from trainer.compat.source.paths import OUR_PACKAGES
from trainer.compat.source.tf1_packages import Tf1Packages
from trainer.compat.source.user_program import UserProgram

_CONTRIB = "tensorflow.contrib"
_OUR_CONTRIB = "trainer.compat.contrib"
_TPU = "tensorflow.python.tpu."
_ROOTS = ("tensorflow", "tensorflow_estimator")
# Subpackages of tensorflow that are the same for programs for TensorFlow 1 and 2, so that Python
# imports their modules as usual. For a program for TensorFlow 1, other modules such as
# tensorflow.train are looked up as attributes of `TensorFlow1Proxy`.
_REAL_PACKAGES = ("compat", "contrib", "core", "python")


class ImportHook(MetaPathFinder):
    """A finder for the modules of tf.contrib, which tpuserve supplies.

    The finder also calls a function as soon as TensorFlow has been imported, so that the function
    can patch TensorFlow.

    Args:
      on_tensorflow: function to call when TensorFlow has been imported, before the program's
        import statement returns.
      tensorflow_context: function that returns a context manager, inside which TensorFlow is
        imported.
    """

    def __init__(
        self,
        on_tensorflow: Callable[[], None],
        tensorflow_context: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._on_tensorflow = on_tensorflow
        self._tensorflow_context = tensorflow_context

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that this finder supplies, or None for other modules.

        The arguments are those of importlib.abc.MetaPathFinder.find_spec.

        Raises:
          ModuleNotFoundError: the module is an unsupported module of tf.contrib; the message says
            what to use instead.
        """
        if fullname == "tensorflow":
            return self._find_spec_and_then(
                fullname, path, target, lambda _: self._on_tensorflow(), self._tensorflow_context
            )
        if fullname == removed_names.NUMPY:
            return self._find_spec_and_then(
                fullname, path, target, removed_names.supply_numpy_names
            )
        if fullname == override_shims.BATCH_NORMALIZATION_MODULE:
            return self._find_spec_and_then(
                fullname, path, target, override_shims.install_override_shims
            )
        if fullname in moved_names.NAMES:
            return self._find_spec_and_then(
                fullname, path, target, install_names.restore_moved_names
            )
        if fullname in moved_names.MODULES:
            return make_alias_spec(
                fullname, moved_names.MODULES[fullname] or _make_moved_package(fullname)
            )
        if fullname == _CONTRIB or fullname.startswith(f"{_CONTRIB}."):
            return make_alias_spec(fullname, _find_contrib_module(fullname[len(_CONTRIB) + 1 :]))
        if fullname.startswith(_TPU):
            aliased_module = contrib_module_aliases.MODULE_ALIASES.get(
                f"tpu.python.tpu.{fullname[len(_TPU) :]}"
            )
            # Supply tpuserve's module only if the installed TensorFlow has no module of that name.
            # Otherwise let Python's own finders find TensorFlow's module.
            if aliased_module is not None and PathFinder.find_spec(fullname, path, target) is None:
                return make_alias_spec(fullname, aliased_module)
        return None

    def _find_spec_and_then(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None,
        callback: Callable[[ModuleType], None],
        context: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> ModuleSpec | None:
        """Return the spec that the other finders find for a module, with a callback added."""
        other_finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in other_finders)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_call_back(module: ModuleType) -> None:
            with context():
                execute(module)
            callback(module)

        spec.loader.exec_module = execute_and_call_back  # type: ignore[method-assign]
        return spec


class _AliasPackage(LazyModule):
    """A package inside tf.contrib without code of its own, such as tf.contrib.tpu.python."""

    def __init__(
        self, name: str, display_name: str, targets: Mapping[str, str], exporter: str | None
    ) -> None:
        names = importlib.import_module(exporter).__all__ if exporter is not None else ()
        self._exported = frozenset(names)
        exports = {exported: f"{exporter}:{exported}" for exported in names}
        super().__init__(name, display_name, {**targets, **exports}, {})

    def __setattr__(self, name: str, value: Any) -> None:
        # Python sets an imported submodule as an attribute of its package.
        if isinstance(value, ModuleType) and name in self.__dict__.get("_exported", ()):
            return
        super().__setattr__(name, value)

    def _missing_name_message(self, name: str) -> str:
        return str(contrib_missing_names.missing_name_error(self.display_name, name, self.__all__))


def _make_moved_package(name: str) -> LazyModule:
    """Return a package whose modules `moved_names.MODULES` lists."""
    prefix = f"{name}."
    modules = [module for module in moved_names.MODULES if module.startswith(prefix)]
    return LazyModule(name, name, {m.removeprefix(prefix): f"{m}:" for m in modules}, {})


def _find_contrib_module(path: str) -> str | ModuleType:
    """Return the module that replaces tf.contrib.PATH: the module itself, or its full name."""
    aliases = contrib_module_aliases.MODULE_ALIASES
    if not path:
        return _OUR_CONTRIB
    if path in aliases:
        return aliases[path]
    if "." not in path and importlib.util.find_spec(f"{_OUR_CONTRIB}.{path}") is not None:
        return f"{_OUR_CONTRIB}.{path}"
    name = f"{_CONTRIB}.{path}"
    submodules = {
        alias[len(path) + 1 :].split(".")[0] for alias in aliases if alias.startswith(f"{path}.")
    }
    if submodules:
        targets = {submodule: f"{name}.{submodule}:" for submodule in submodules}
        return _AliasPackage(
            name,
            f"tf.contrib.{path}",
            targets,
            contrib_module_aliases.PACKAGE_EXPORTS.get(path),
        )
    raise contrib_missing_names.missing_module_error(name)


class ProgramImportFunction:
    """A replacement of builtins.__import__ that changes what a user's program imports.

    If the program is written for TensorFlow 1, `import tensorflow` in the program returns a module
    with the symbols of TensorFlow 1.

    Args:
      get_proxy: function that returns the module that the program gets for `tensorflow`; None
        if the program gets TensorFlow itself. The function is called after TensorFlow's import.
      packages: decides which installed packages get the symbols of TensorFlow 1. In the modules
        of other packages, imports are not changed.
    """

    def __init__(
        self,
        program: UserProgram,
        get_proxy: Callable[[], TensorFlow1Proxy | None],
        packages: Tf1Packages,
        get_package_proxy: Callable[[], TensorFlow1Proxy],
    ) -> None:
        self._program, self._get_proxy = program, get_proxy
        self._packages, self._get_package_proxy = packages, get_package_proxy
        self._original: Callable[..., Any] = builtins.__import__
        builtins.__import__ = self

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """Import a module, as builtins.__import__ does with the same arguments."""
        root = name.partition(".")[0]
        if level != 0 or root not in (*_ROOTS, *OUR_PACKAGES):
            return self._original(name, globals, locals, fromlist, level)
        is_own = self._program.owns_module(globals)
        if is_own and root in OUR_PACKAGES:
            name = user_program.resolve_module_name(name, self._program.directories)
            return self._original(name, globals, locals, fromlist, level)
        is_of_package = (
            not is_own and _depends_on_version(name) and self._packages.includes_module(globals)
        )
        if not is_own and not is_of_package:
            return self._original(name, globals, locals, fromlist, level)
        self._original(root)
        proxy = self._get_proxy() if is_own else self._get_package_proxy()
        module = _find_public_module(name, proxy)
        if module is None:
            _import_contrib_submodules(name, fromlist or ())
            module = self._original(name, globals, locals, fromlist, level)
            if proxy is not None and module is sys.modules.get("tensorflow"):
                module = proxy
        elif not fromlist:
            # Return the stand-in for `tensorflow` and not the submodule, because a statement
            # `import tensorflow.X` binds the name `tensorflow`.
            module = proxy
        _check_names_exist(module, fromlist or ())
        return module


def _depends_on_version(name: str) -> bool:
    """Return whether a module of TensorFlow has different symbols in versions 1 and 2."""
    root, _, path = name.partition(".")
    return root == "tensorflow" and path.partition(".")[0] not in _REAL_PACKAGES


def _find_public_module(name: str, proxy: TensorFlow1Proxy | None) -> ModuleType | None:
    root, _, path = name.partition(".")
    if proxy is None or root != "tensorflow" or path.partition(".")[0] in ("", *_REAL_PACKAGES):
        return None
    return proxy.get_submodule(path)


def _import_contrib_submodules(package: str, names: Sequence[str]) -> None:
    for imported_name in names:
        name = f"{package}.{imported_name}"
        if name.removeprefix(f"{_CONTRIB}.") in contrib_module_aliases.MODULE_ALIASES:
            importlib.import_module(name)


def _check_names_exist(module: Any, names: Sequence[str]) -> None:
    """Check that a module that tpuserve supplies has the names that a program imports from it."""
    if not isinstance(module, (TensorFlow1Proxy, LazyModule)) and not str(
        getattr(module, "__name__", "")
    ).startswith(_OUR_CONTRIB):
        return
    for name in names:
        if name == "*":
            continue
        try:
            getattr(module, name)
        except AttributeError as error:
            raise ImportError(str(error), name=module.__name__) from None
