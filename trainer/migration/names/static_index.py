"""Looks up names in the source files of tpuserve and TensorFlow, without importing the packages."""

import ast
import functools
import re
from importlib.machinery import PathFinder
from pathlib import Path

_ROOT = Path(__file__).parents[3]


@functools.cache
def public_names(module: str) -> tuple[str, ...] | None:
    """Return the names in a tpuserve module's `__all__`; None if the module does not exist."""
    source = parse_module(module)
    if source is None:
        return None
    for node in source.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return tuple(ast.literal_eval(getattr(node, "value", None) or "()"))
    return ()


@functools.cache
def find_definition(module: str, name: str) -> tuple[str, str]:
    """Find the module that defines a name, starting from a module of tpuserve that has the name.

    A module that has the name may define it, or import it from another module.
    """
    source = parse_module(module)
    if module == "trainer":
        source = ast.parse((_ROOT / "trainer/__init__.pyi").read_text(encoding="utf-8"))
    for node in source.body if source is not None else ():
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return find_definition(node.module, alias.name)
    return module, name


@functools.cache
def parse_module(module: str) -> ast.Module | None:
    """Return the syntax tree of a module of tpuserve.

    Returns None if there is no such module, or if the module is not of tpuserve.
    """
    if module.split(".")[0] not in ("trainer", "tpuserve"):
        return None
    place = _ROOT.joinpath(*module.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None


@functools.cache
def is_inside_tensorflow(name: str) -> bool | None:
    """Return whether the source files of TensorFlow, or of its estimators, define a name.

    Attributes of classes and functions are not looked up, but assumed to exist.

    Args:
      name: the full name of a module or of a name in it, such as "tensorflow.python.framework.ops".

    Returns:
      Whether a file defines the name; None if this cannot be found out, because the module is a
      compiled file or the package is not installed.
    """
    package, *parts = name.split(".")
    directory = _package_directory(package)
    if directory is None:
        return None
    place = directory
    for index, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
            continue
        module = place / f"{part}.py"
        if module.is_file():
            return index + 1 == len(parts) or _defines(module, parts[index + 1])
        if any(place.glob(f"{part}.*so")):
            return None
        package_file = place / "__init__.py"
        return package_file.is_file() and _defines(package_file, part)
    return True


def _defines(file: Path, name: str) -> bool:
    # Search for the definition by a regular expression, which takes a few ms. Parsing a file would
    # take up to 500 ms, because some files of TensorFlow have 15,000 lines.
    word = re.escape(name)
    pattern = (
        rf"^(?:def |class |@)?{word}\b|^(?:from|import)\b[^\n]*\b{word}\b|^ +{word} = |\b_globals\["
    )
    text = _read_text(file)
    if re.search(pattern, text, re.MULTILINE):
        return True
    others = re.findall(r"^from (tensorflow\.[\w.]+) import \*", text, re.MULTILINE)
    return any(is_inside_tensorflow(f"{module}.{name}") is not False for module in others)


@functools.cache
def _read_text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@functools.cache
def _package_directory(package: str) -> Path | None:
    # Not that of sys.modules, where tpuserve's own tensorflow_estimator may be.
    spec = PathFinder.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))
