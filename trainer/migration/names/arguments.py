"""Arguments that a program gives by name to what is supplied, and that this does not take."""

import ast
from collections.abc import Iterator

from trainer.compat.source.name_references import uses
from trainer.migration.names import contrib_names, static_index, tensorflow_names
from trainer.migration.names.classification import Kind, Verdict

# What is a list of arguments to a program, but raises where it is used.
_REFUSED = {
    ("TPUEstimator", "embedding_config_spec"): (
        "The TPU's embedding engine keeps no tables here: build them in model_fn, and leave it out."
    ),
}


def unknown(tree: ast.Module, *, tf1: bool) -> Iterator[tuple[int, str, str, Verdict]]:
    """Of each argument that is not taken: its line, the call as written, its name, the verdict."""
    known: dict[str, str] = {}
    for use in uses(tree):
        verdict = tensorflow_names.judge(use, tf1=tf1)
        if verdict.kind is Kind.SUPPLIED and verdict.says:
            # An import gives its last part, unless it says another name.
            known[use.name.rpartition(".")[2] if use.is_import else use.shown] = verdict.says
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = [each for each in node.keywords if each.arg is not None]
        if called not in known or not given:
            continue
        taken = _taken(known[called])
        for each in given:
            name = str(each.arg)
            last = known[called].rpartition(".")[2]
            is_none = isinstance(each.value, ast.Constant) and each.value.value is None
            written_as, whole = f"{called}({name}=)", f"{known[called]}({name}=)"
            if (last, name) in _REFUSED and not is_none:
                yield each.value.lineno, written_as, whole, Verdict(Kind.GONE, _REFUSED[last, name])
            elif taken is not None and name not in taken:
                yield each.value.lineno, written_as, whole, contrib_names.unknown(name, taken)


def _taken(home: str) -> list[str] | None:
    """The arguments of a function or a class of ours; None where any may do."""
    module, _, name = home.rpartition(".")
    if module == "trainer":
        module, name = static_index.home("trainer", name)
    source = static_index.tree(module)
    for node in source.body if source is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == name and not node.decorator_list:
            return _of_function(node)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _of_class(node, module)
    return None


def _of_class(node: ast.ClassDef, module: str) -> list[str] | None:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _of_function(each)
    is_dataclass = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    if not is_dataclass or not all(_adds_nothing(each, module) for each in node.bases):
        # Its arguments are those of a class that we have not read.
        return None
    fields = [
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    return [each for each in fields if each != "_"]


def _adds_nothing(base: ast.expr, module: str) -> bool:
    """Whether a base class of a dataclass has no field, so that it takes no argument."""
    home, name = static_index.home(module, ast.unparse(base))
    source = static_index.tree(home)
    for node in source.body if source is not None else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            return not node.bases and not any(isinstance(each, ast.AnnAssign) for each in node.body)
    return False


def _of_function(node: ast.FunctionDef) -> list[str] | None:
    if node.args.kwarg is not None:
        return None
    return [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
