"""Private names of other packages are used only through modules that report missing names."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

import tpuserve
import trainer
import trainer.keras_internals
import trainer.tensorflow_internals
from tpuserve import keras_internals, tensorflow_internals

_PACKAGES = (tpuserve, trainer)
# The modules that access private names, and report missing ones with the installed version.
_ACCESS_MODULES = {"tensorflow_internals.py", "keras_internals.py", "httpx_internals.py"}
# The tables in these modules of the private names that each package uses. Other tests check that
# the installed versions have them.
_TABLES: dict[ModuleType, tuple[Mapping[str, Iterable[str]], ...]] = {
    tpuserve: (
        tensorflow_internals._OBJECT_ATTRIBUTES,
        *keras_internals._OBJECT_ATTRIBUTES.values(),
    ),
    trainer: (
        trainer.tensorflow_internals._OBJECT_ATTRIBUTES,
        *trainer.keras_internals._OBJECT_ATTRIBUTES.values(),
        trainer.keras_internals._METHODS,
    ),
}
# Private names that any module may use: the documentation of Python describes them.
_PUBLIC = {"_asdict", "_exit", "_fields", "_getframe", "_replace"}
# (module, name) of other private names that a module uses directly → why it may.
_ALLOWED = {
    ("trainer/compat/contrib/framework/arg_scope.py", "_key_op"): "arg_scope itself sets it",
    ("trainer/conversion/estimators.py", "_program"): "of trainer.Estimator",
    ("trainer/estimator/plain_export.py", "_export"): "of trainer.Estimator",
    ("trainer/modes/evaluate.py", "_set_scaffold"): "of hooks of the user and of trainer",
}
_BUILT_INS = ("getattr", "setattr", "hasattr", "delattr")
_ACCESSORS = re.compile(r"(get|set|find)_private_attribute|attach_to_tensor")
# Files without a match have nothing to check. They are not parsed, because parsing takes long.
_RELEVANT = re.compile(
    r"(?<!self)(?<!cls)\._[a-zA-Z]|attr\(|_attribute\(|attach_to|_internals import"
)


@functools.cache
def _parse(package: ModuleType) -> Mapping[str, ast.Module]:
    """Parse the files of a package that may use private names: path → syntax tree."""
    root = Path(package.__file__ or "").parent
    texts = {
        path.relative_to(root.parent).as_posix(): path.read_text(encoding="utf-8")
        for path in root.rglob("*.py")
        if not path.name.endswith("_pb2.py")
    }
    return {path: ast.parse(text) for path, text in texts.items() if _RELEVANT.search(text)}


def _is_private(name: object) -> bool:
    return isinstance(name, str) and re.match(r"_[^_]", name) is not None


def _get_literal(call: ast.Call) -> str:
    """Return the second argument of a call if it is a private name, else ""."""
    argument = call.args[1] if len(call.args) > 1 else None
    is_name = isinstance(argument, ast.Constant) and _is_private(argument.value)
    return str(argument.value) if is_name and isinstance(argument, ast.Constant) else ""


def _list_accesses(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a file uses of objects that its own classes do not define.

    Names of the modules that an internals module offers are not included.
    """
    own: set[str] = set()
    modules: set[str] = {"self", "cls"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            own |= {method.name for method in node.body if isinstance(method, ast.FunctionDef)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                own.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_internals"):
            modules |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            is_known = isinstance(node.value, ast.Name) and node.value.id in modules
            is_super = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
            name = "" if is_known or is_super else node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _BUILT_INS:
            name = _get_literal(node)
        if name and name not in own | _PUBLIC:
            yield name


@pytest.mark.slow
def test_private_names_of_other_packages_are_used_only_through_the_internals_modules() -> None:
    accesses = {
        (path, name)
        for package in _PACKAGES
        for path, tree in _parse(package).items()
        if Path(path).name not in _ACCESS_MODULES
        for name in _list_accesses(tree)
    }
    assert accesses == set(_ALLOWED)


@pytest.mark.parametrize("package", _PACKAGES)
def test_every_private_name_is_in_a_table_whose_names_are_checked(package: ModuleType) -> None:
    used = {
        _get_literal(node)
        for tree in _parse(package).values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _ACCESSORS.search(ast.unparse(node.func))
    }
    declared = {name for table in _TABLES[package] for names in table.values() for name in names}
    assert used - {""} - declared == set()


@pytest.mark.parametrize("package", _PACKAGES)
def test_every_attribute_of_a_private_module_is_checked_at_its_import(package: ModuleType) -> None:
    internals = {tpuserve: tensorflow_internals, trainer: trainer.tensorflow_internals}[package]
    undeclared = {
        (path, node.value.id, node.attr)
        for path, tree in _parse(package).items()
        for names in [_list_imported_names(tree, internals)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        and node.attr not in internals._MODULE_ATTRIBUTES.get(node.value.id, ())
    }
    assert undeclared == set()


def _list_imported_names(tree: ast.Module, internals: ModuleType) -> set[str]:
    """Return the names in `_NAMES` that a file imports from an internals module."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == internals.__name__
        for alias in node.names
        if alias.name in internals._NAMES
    }
