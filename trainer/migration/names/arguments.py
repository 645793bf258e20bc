"""Finds calls that fail because a tpuserve function or class does not accept the arguments."""

import ast
from collections.abc import Iterator

from trainer.compat import contrib_missing_names
from trainer.compat.source import name_references
from trainer.compat.source.name_references import find_name_references
from trainer.migration.names import contrib_names, static_index, tensorflow_names
from trainer.migration.names.classification import NameClassification, NameStatus

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def find_shadowed_names(tree: ast.Module) -> set[tuple[int, str]]:
    """Find attributes of local variables, to exclude them from the TensorFlow names of the file.

    For example, after `layers = []` in a function, `layers.append` is not a name of tf.layers, even
    if the file imports that module as `layers`.

    Returns:
      (line number, name as written) for each use of an attribute, such as (12, "layers.append").
    """
    shadowed = set()
    for function in name_references.walk(tree):
        if isinstance(function, _Function):
            local_names = set(_local_names(function))
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and _root_name(node) in local_names:
                    shadowed.add((node.end_lineno or node.lineno, ast.unparse(node)))
    return shadowed


def _local_names(function: _Function) -> Iterator[str]:
    """Yield the names of a function's parameters and local variables."""
    nodes = list(ast.walk(function))
    aliases = {
        target
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        for target in node.targets
    }
    global_names = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.arg):
            yield node.arg
        elif (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node not in aliases
            and node.id not in global_names
        ):
            yield node.id


def _root_name(node: ast.Attribute) -> str | None:
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


# The class that programs can import, but that raises an error whenever it is instantiated.
_NOT_CALLABLE = "trainer.compat.contrib.distribute.TPUStrategy"


def unknown_arguments(
    tree: ast.Module, *, tf1: bool
) -> Iterator[tuple[int, str, str, NameClassification]]:
    """Find calls and keyword arguments that functions and classes of tpuserve do not accept.

    tpuserve supplies these functions and classes in place of TensorFlow's.

    Args:
      tf1: whether `import tensorflow` gives the program TensorFlow 1's names.

    Yields:
      For each unknown argument, four items: the line number; a text such as "f(argument=)" with the
      function's name in the program; such a text with the function's full name; the classification.
    """
    homes: dict[str, str] = {}
    for use in find_name_references(tree):
        status = tensorflow_names.classify(use, tf1=tf1)
        if status.kind is NameStatus.SUPPLIED and status.says:
            # For an imported name, use the last part to find calls: after `from package import
            # name`, the program calls `name`, not `package.name`.
            homes[use.name.rpartition(".")[2] if use.is_import else use.written_name] = status.says
    for node in name_references.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if homes.get(function) == _NOT_CALLABLE:
            advice = contrib_missing_names.find_replacement("tf.contrib.distribute.TPUStrategy")
            status = NameClassification(NameStatus.GONE, advice or "")
            yield node.lineno, f"{function}()", f"{_NOT_CALLABLE}()", status
            continue
        keywords = [keyword for keyword in node.keywords if keyword.arg is not None]
        if function not in homes or not keywords:
            continue
        accepted = _accepted_arguments(homes[function])
        for keyword in keywords:
            name = str(keyword.arg)
            written, full = f"{function}({name}=)", f"{homes[function]}({name}=)"
            line = keyword.value.lineno
            if accepted is not None and name not in accepted:
                yield line, written, full, contrib_names.classify_unknown(name, accepted)


def _accepted_arguments(home: str) -> list[str] | None:
    """Return the names of the arguments that a tpuserve function or class accepts."""
    module, _, name = home.rpartition(".")
    if module == "trainer":
        module, name = static_index.find_definition("trainer", name)
    source = static_index.parse_module(module)
    for node in source.body if source is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == name and not node.decorator_list:
            return _function_arguments(node)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _class_arguments(node, module)
    return None


def _class_arguments(node: ast.ClassDef, module: str) -> list[str] | None:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _function_arguments(statement)
    is_dataclass = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    if not is_dataclass or not all(_has_no_fields(base, module) for base in node.bases):
        # A base class, possibly in another file, may define arguments of the constructor. Return
        # None, which means that the arguments are unknown.
        return None
    fields = [
        statement.target.id
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]
    return [field for field in fields if field != "_"]


def _has_no_fields(base: ast.expr, module: str) -> bool:
    """Return whether a base class adds no fields to a dataclass, and thus no arguments."""
    home, name = static_index.find_definition(module, ast.unparse(base))
    source = static_index.parse_module(home)
    for node in source.body if source is not None else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            return not node.bases and not any(
                isinstance(statement, ast.AnnAssign) for statement in node.body
            )
    return False


def _function_arguments(node: ast.FunctionDef) -> list[str] | None:
    if node.args.kwarg is not None:
        return None
    return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
