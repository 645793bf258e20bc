"""Prints figures of the code's structure, to compare two states of the repository.

    python -m tools.structure_figures [DIRECTORY]

Generated files are left out. A function's length is the number of lines of its body, without its
signature and docstring. A line counts as code if it holds more than a comment or a docstring.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tools.sources import PACKAGES, Definition, SourceFile, depth, import_graph, source_files

_VERBS = (
    *("build", "check", "find", "get", "judge", "load", "make", "open", "parse", "read", "run"),
    *("say", "show", "tell", "write"),
)
_VAGUE_LOCALS = ("each", "found", "made", "wanted", "given")
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def body_lines(node: Definition) -> int:
    """Return the number of lines of a function's body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def code_lines(file: SourceFile) -> int:
    """Return the number of lines that hold code, and not only comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Expr) and _is_string(node.value):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def vague_locals(file: SourceFile) -> Counter[str]:
    """Return how often each name in `_VAGUE_LOCALS` is assigned or is a loop variable."""
    return Counter(
        node.id
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in _VAGUE_LOCALS
    )


def _room_graph(graph: dict[str, set[str]], package: str) -> dict[str, set[str]]:
    """Return the import graph of a package's direct subpackages and modules."""
    rooms: dict[str, set[str]] = {}
    for module, targets in graph.items():
        if module.startswith(f"{package}."):
            room = module.split(".")[1]
            targets_below = {name for name in targets if name.startswith(f"{package}.")}
            rooms.setdefault(room, set()).update(name.split(".")[1] for name in targets_below)
    return {room: targets - {room} for room, targets in rooms.items()}


def _package_figures(package: str, files: list[SourceFile]) -> None:
    own = [file for file in files if file.path.parts[0] == package]
    top = [file for file in own if len(file.path.parts) == 2]
    folders = Counter(
        str(file.path.parent) for file in own if file.path.name not in ("__init__.py",)
    )
    graph = import_graph(files)
    own_graph = {
        module: {name for name in targets if name.split(".")[0] == package}
        for module, targets in graph.items()
        if module.split(".")[0] == package
    }
    print(f"\n{package}: {len(own)} files")
    print(f"  files at the top: {len(top)}")
    fullest = ", ".join(f"{folder} {count}" for folder, count in folders.most_common(5))
    print(f"  fullest rooms (files, without __init__.py): {fullest}")
    print(f"  import layers of modules: {depth(own_graph)}")
    print(f"  import layers of rooms: {depth(_room_graph(graph, package))}")


def _list_functions(files: Iterable[SourceFile]) -> None:
    functions = [
        (file, name, node)
        for file in files
        for name, node in file.definitions()
        if not isinstance(node, ast.ClassDef)
    ]
    longest = sorted(functions, key=lambda function: -body_lines(function[2]))[:10]
    print("\nlongest functions, in lines of body:")
    for file, name, node in longest:
        print(f"  {body_lines(node):4} {name} ({file.path})")
    over_60 = sum(body_lines(node) > 60 for _, _, node in functions)
    print(f"functions over 60 lines of body: {over_60}")
    of_names = [f"{file.module}.{name}" for file, name, _ in functions if _is_of(name)]
    print(f"functions named of or of_*: {len(of_names)} {' '.join(of_names[:10])}")
    bare = [
        f"{file.module}.{name}" for file, name, _ in functions if name in _VERBS and "." not in name
    ]
    print(f"module functions named by a bare verb: {len(bare)} {' '.join(bare[:10])}")


def _is_of(name: str) -> bool:
    return re.fullmatch(r"_?of(_\w+)?", name.rpartition(".")[2]) is not None


def main() -> None:
    """Print the figures of the directory that the command line names, or of the current one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    files = source_files(root)
    for package in PACKAGES:
        _package_figures(package, files)
    _list_functions(files)
    counts = sum((vague_locals(file) for file in files), Counter())
    print(f"locals {'|'.join(_VAGUE_LOCALS)}: {counts.total()} {dict(counts)}")
    compat = Path("trainer/compat")
    lines = {file.path: code_lines(file) for file in files}
    rest = sum(count for path, count in lines.items() if compat not in path.parents)
    print(f"lines of code: {sum(lines.values())}, without trainer/compat {rest}")
    print(f"lines of files: {sum(file.text.count(chr(10)) for file in files)}")


if __name__ == "__main__":
    main()
