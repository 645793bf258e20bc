"""How imports of TensorFlow are answered while a program of its first version runs."""

import builtins
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from trainer.compat.contrib_names import missing_names, module_aliases
from trainer.compat.imports import estimator_aliases, override_shims
from trainer.compat.imports.lazy_module import LazyModule
from trainer.compat.imports.module_proxy import TensorFlow1Proxy
from trainer.compat.source import name_collisions
from trainer.compat.source.paths import OUR_PACKAGES
from trainer.compat.source.program import Program

_CONTRIB = "tensorflow.contrib"
_OUR_CONTRIB = "trainer.compat.contrib"
_TPU = "tensorflow.python.tpu."
_ESTIMATOR_TPU = tuple(f"{each}.tpu" for each in estimator_aliases.ROOTS)
_ROOTS = ("tensorflow", "tensorflow_estimator")
# What is below these is found as Python finds it.
_INNER = ("compat", "contrib", "core", "python")


class ImportHook(MetaPathFinder):
    """Finds tf.contrib and the modules of TPUEstimator, and says when TensorFlow is there.

    It comes before all other finders.
    """

    def __init__(self, on_tensorflow: Callable[[], None]) -> None:
        """Takes what is called once TensorFlow has been imported, before its importer goes on."""
        self._on_tensorflow = on_tensorflow

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder.

        Raises:
          ModuleNotFoundError: a module of tf.contrib or tensorflow_estimator that is not supplied;
            it says what to do.
        """
        if fullname == "tensorflow":
            return self._telling(fullname, path, target, lambda _: self._on_tensorflow())
        if fullname == override_shims.BATCH_NORMALIZATION_MODULE:
            return self._telling(fullname, path, target, override_shims.install_override_shims)
        if fullname == _CONTRIB or fullname.startswith(f"{_CONTRIB}."):
            return _alias(fullname, _contrib_home(fullname[len(_CONTRIB) + 1 :]))
        if fullname.startswith(_TPU):
            home = module_aliases.MODULE_ALIASES.get(f"tpu.python.tpu.{fullname[len(_TPU) :]}")
            # TensorFlow imports its own.
            if home is not None and PathFinder.find_spec(fullname, path, target) is None:
                return _alias(fullname, home)
        if fullname.startswith(tuple(f"{each}." for each in estimator_aliases.ROOTS)):
            package, _, form = fullname.rpartition(".")
            home = module_aliases.MODULE_ALIASES.get(f"tpu.python.tpu.{form}")
            if home is not None and package in _ESTIMATOR_TPU:
                return _alias(fullname, home)
            raise ModuleNotFoundError(
                f"{fullname} is not supplied. Take what the program needs of it from tf.estimator; "
                f"`tpuserve migrate` says what is there.",
                name=fullname,
            )
        return None

    def _telling(
        self,
        name: str,
        path: Sequence[str] | None,
        target: ModuleType | None,
        tell: Callable[[ModuleType], None],
    ) -> ModuleSpec | None:
        others = (each for each in sys.meta_path if each is not self)
        found = (each.find_spec(name, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            tell(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


class _AliasLoader(Loader):
    def __init__(self, home: str | ModuleType) -> None:
        self._home = home

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        home = self._home
        if isinstance(home, str):
            home = importlib.import_module(home)
        if not hasattr(home, "__path__"):
            # Modules are imported from below this one, and Python asks for a package.
            home.__path__ = []
        # The machinery takes what is there afterwards.
        sys.modules[module.__name__] = home


def _alias(name: str, home: str | ModuleType) -> ModuleSpec:
    return ModuleSpec(name, _AliasLoader(home), is_package=True)


class _AliasPackage(LazyModule):
    """A package of tf.contrib that is not one of ours: "tf.contrib.tpu.python"."""

    def _missing(self, name: str) -> str:
        return str(missing_names.missing_name_error(self.shown, name, self.__all__))


def _contrib_home(path: str) -> str | ModuleType:
    """The module that is tf.contrib.PATH."""
    forms = module_aliases.MODULE_ALIASES
    if not path:
        return _OUR_CONTRIB
    if path in forms:
        return forms[path]
    if "." not in path and importlib.util.find_spec(f"{_OUR_CONTRIB}.{path}") is not None:
        return f"{_OUR_CONTRIB}.{path}"
    parts = {each[len(path) + 1 :].split(".")[0] for each in forms if each.startswith(f"{path}.")}
    name = f"{_CONTRIB}.{path}"
    if parts:
        return _AliasPackage(
            name, f"tf.contrib.{path}", {each: f"{name}.{each}:" for each in parts}, {}
        )
    replacement = missing_names.find_replacement(f"tf.contrib.{path}")
    advice = replacement or "See `tpuserve migrate` for the rest."
    raise ModuleNotFoundError(
        f"tf.contrib.{path} is not supplied: TensorFlow 2 has no tf.contrib. {advice}", name=name
    )


class ProgramImportFunction:
    """The `import` of a process, where modules of the program get a façade of TensorFlow."""

    def __init__(self, program: Program, proxy: Callable[[], TensorFlow1Proxy | None]) -> None:
        """Takes the place of Python's own from now on.

        Args:
          program: whose modules are answered so; all others get what Python gives.
          facade: what stands for TensorFlow, once that is imported; None for TensorFlow itself.
        """
        self._program, self._get_proxy = program, proxy
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
        """See builtins.__import__."""
        root = name.partition(".")[0]
        is_plain = level != 0 or root not in (*_ROOTS, *OUR_PACKAGES)
        if is_plain or not self._program.owns_module(globals):
            return self._original(name, globals, locals, fromlist, level)
        if root in OUR_PACKAGES:
            name = name_collisions.resolve_module_name(name, self._program.directories)
            return self._original(name, globals, locals, fromlist, level)
        self._original(root)
        found = self._public(name)
        if found is None:
            _import_forms(name, fromlist or ())
            found = self._original(name, globals, locals, fromlist, level)
            proxy = self._get_proxy()
            if proxy is not None and found is sys.modules.get("tensorflow"):
                found = proxy
        elif not fromlist:
            found = self._get_proxy()
        _demand(found, fromlist or ())
        return found

    def _public(self, name: str) -> ModuleType | None:
        proxy = self._get_proxy()
        root, _, path = name.partition(".")
        if proxy is None or root != "tensorflow" or path.partition(".")[0] in ("", *_INNER):
            return None
        return proxy.module(path)


def _import_forms(package: str, names: Sequence[str]) -> None:
    """Imports modules that are named in `from PACKAGE import MODULE`.

    Where the package is one file of ours, Python would look for an attribute.
    """
    for each in names:
        name = f"{package}.{each}"
        if name.removeprefix(f"{_CONTRIB}.") in module_aliases.MODULE_ALIASES:
            importlib.import_module(name)


def _demand(module: Any, names: Sequence[str]) -> None:
    """Has an import of names that are not there say what their module says of them."""
    if not isinstance(module, (TensorFlow1Proxy, LazyModule)) and not str(
        getattr(module, "__name__", "")
    ).startswith(_OUR_CONTRIB):
        return
    for each in names:
        if each == "*":
            continue
        try:
            getattr(module, each)
        except AttributeError as error:
            raise ImportError(str(error), name=module.__name__) from None
