"""The names that files of ours and of TensorFlow have, read from them without importing any."""

import ast
import functools
import importlib.util
import re
from pathlib import Path

_ROOT = Path(__file__).parents[3]


@functools.cache
def public_names(module: str) -> tuple[str, ...] | None:
    """The `__all__` of a module of ours; None where there is no such module."""
    source = tree(module)
    if source is None:
        return None
    for node in source.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets):
            return tuple(ast.literal_eval(getattr(node, "value", None) or "()"))
    return ()


@functools.cache
def home(module: str, name: str) -> tuple[str, str]:
    """The module where a name of a module of ours comes from, and its name there."""
    source = tree(module)
    if module == "trainer":
        source = ast.parse((_ROOT / "trainer/__init__.pyi").read_text(encoding="utf-8"))
    for node in source.body if source is not None else ():
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                if (each.asname or each.name) == name:
                    return home(node.module, each.name)
    return module, name


@functools.cache
def tree(module: str) -> ast.Module | None:
    """What a module of ours says; None where there is no such module."""
    if module.split(".")[0] not in ("trainer", "tpuserve"):
        return None
    place = _ROOT.joinpath(*module.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None


@functools.cache
def is_inside_tensorflow(name: str) -> bool | None:
    """Whether TensorFlow's files have a name below it: "tensorflow.python.framework.ops.Graph".

    What a class or a function has inside is its own, and is taken to be there.

    Returns:
      None where the file cannot be read, as it is not Python.
    """
    directory = _tensorflow()
    if directory is None:
        return None
    parts = name.split(".")[1:]
    place = directory
    for index, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
            continue
        module = place / f"{part}.py"
        if module.is_file():
            return index + 1 == len(parts) or _binds(module, parts[index + 1])
        if any(place.glob(f"{part}.*so")):
            return None
        inside = place / "__init__.py"
        return inside.is_file() and _binds(inside, part)
    return True


def _binds(file: Path, name: str) -> bool:
    # Some of these files are of 15,000 lines: a pattern finds in ms what a parser does in 500.
    word = re.escape(name)
    pattern = (
        rf"^(?:def |class |@)?{word}\b|^(?:from|import)\b[^\n]*\b{word}\b|^ +{word} = |\b_globals\["
    )
    text = _text(file)
    if re.search(pattern, text, re.MULTILINE):
        return True
    others = re.findall(r"^from (tensorflow\.[\w.]+) import \*", text, re.MULTILINE)
    return any(is_inside_tensorflow(f"{each}.{name}") is not False for each in others)


@functools.cache
def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@functools.cache
def _tensorflow() -> Path | None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))
