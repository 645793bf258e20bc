"""Finds the modules of tensorflow_estimator: the canned estimators and heads, and tpuserve's own.

The canned estimators and heads are the unmodified modules of the package tensorflow-estimator.
What these modules import from the rest of tensorflow_estimator is tpuserve's.
"""

import ast
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.version import Version

from trainer.compat import contrib_module_aliases
from trainer.compat.imports import estimator_aliases
from trainer.compat.imports.alias_loader import make_alias_spec
from trainer.compat.source import estimator_names

DISTRIBUTION = "tensorflow-estimator"
VERSION = "2.15.0"
# With versions up to this one, TensorFlow has every name that the package's modules read.
_NEWEST_TENSORFLOW = Version("2.21")

_PACKAGE = estimator_aliases.ROOTS[0]
_CANNED_PACKAGES = ("canned", "head")
# SavedModelEstimator replaces methods of an Estimator that tpuserve's does not have.
_NOT_SUPPLIED = ("saved_model_estimator", "testing_utils", "_test")

_ADVICE = {
    "boosted_trees": estimator_names.BOOSTED_TREES,
    "saved_model_estimator": estimator_names.SAVED_MODEL_ESTIMATOR,
}


def is_canned_module(path: str) -> bool:
    """Return whether a module is one that the package tensorflow-estimator supplies.

    Args:
      path: the dotted path below tensorflow_estimator.python.estimator, such as "canned.dnn".
    """
    is_in_package = path.partition(".")[0] in _CANNED_PACKAGES
    return is_in_package and not any(part in path for part in _NOT_SUPPLIED)


def find_package_directory() -> Path:
    """Return the directory of tensorflow_estimator.python.estimator in the installed package.

    Raises:
      ModuleNotFoundError: the package is not installed, or another version of it is.
    """
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        found = "it is not installed"
    else:
        if distribution.version == VERSION:
            return Path(str(distribution.locate_file(_PACKAGE.replace(".", "/"))))
        found = f"{distribution.version} is installed"
    raise ModuleNotFoundError(
        f"The canned estimators and heads of tf.estimator need the package {DISTRIBUTION} "
        f"{VERSION}; {found}. Run `pip install {DISTRIBUTION}=={VERSION}`.",
        name=DISTRIBUTION,
    )


class EstimatorFinder(MetaPathFinder):
    """A finder for the modules of tensorflow_estimator, and of tensorflow.python.estimator."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of tensorflow_estimator, or None for other modules.

        Raises:
          ModuleNotFoundError: tpuserve does not supply the module; the message says what to use.
        """
        for root in estimator_aliases.ROOTS:
            if fullname.startswith(f"{root}."):
                return _find_module(root, fullname.removeprefix(f"{root}."))
        return None


def _find_module(root: str, path: str) -> ModuleSpec:
    name = f"{root}.{path}"
    if is_canned_module(path):
        if root != _PACKAGE:
            return make_alias_spec(name, f"{_PACKAGE}.{path}")
        parent = find_package_directory().joinpath(*path.split(".")[:-1])
        spec = PathFinder.find_spec(name, [str(parent)])
        if spec is not None:
            if isinstance(spec.loader, SourceFileLoader):
                spec.loader = _CannedLoader(name, spec.loader.path)
            return spec
    package, _, module = path.rpartition(".")
    alias = contrib_module_aliases.MODULE_ALIASES.get(f"tpu.python.tpu.{module}")
    if alias is not None and package == "tpu":
        return make_alias_spec(name, alias)
    advice = _ADVICE.get(module) or (
        "Import the names that the program needs from tf.estimator; `tpuserve migrate` lists the "
        "names that are supplied."
    )
    # Without the module's name in the error, `from package import module` raises it too.
    raise ModuleNotFoundError(f"{name} is not supplied. {advice}")


class _CannedLoader(SourceFileLoader):
    """Loads a module of tensorflow-estimator, and says which names a new TensorFlow has removed."""

    def exec_module(self, module: ModuleType) -> None:
        tensorflow = importlib.import_module("tensorflow")
        if Version(tensorflow.__version__).release[:2] > _NEWEST_TENSORFLOW.release:
            missing = sorted(set(find_missing_names(Path(self.path))))
            if missing:
                raise ImportError(
                    f"{module.__name__} of {DISTRIBUTION} {VERSION} uses {', '.join(missing)}, "
                    f"which TensorFlow {tensorflow.__version__} lacks. Use TensorFlow "
                    f"{_NEWEST_TENSORFLOW}.",
                    name=module.__name__,
                )
        super().exec_module(module)
        importlib.import_module("trainer.compat.canned_heads").extend(module)


def find_missing_names(file: Path) -> Iterator[str]:
    """Yield the names that a module reads from TensorFlow or from tpuserve, and that are not there.

    Args:
      file: the module's source.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    roots = {
        local: name
        for local, name in imported.items()
        if name.startswith(("tensorflow.", _PACKAGE))
    }
    roots |= {local: name for local, name in imported.items() if name == "tensorflow"}
    paths = set(roots.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            local, *rest = ast.unparse(node).split(".")
            if local in roots and all(part.isidentifier() for part in rest):
                paths.add(".".join((roots[local], *rest)))
    yield from (path for path in paths if not _exists(path))


def _exists(path: str) -> bool:
    """Return whether a dotted path names a module, or an attribute of a module or class."""
    root, *names = path.split(".")
    value: Any = importlib.import_module(root)
    for name in names:
        root = f"{root}.{name}"
        if hasattr(value, name):
            value = getattr(value, name)
        elif hasattr(value, "__path__") and importlib.util.find_spec(root) is not None:
            value = importlib.import_module(root)
        else:
            return False
    return True


def install() -> None:
    """Make the modules of tensorflow_estimator importable; a second call has no effect."""
    if not any(isinstance(finder, EstimatorFinder) for finder in sys.meta_path):
        estimator_aliases.register_estimator_aliases()
        sys.meta_path.insert(0, EstimatorFinder())
