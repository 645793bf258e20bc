"""Prints figures of the code's size and structure, to compare two states of the repository.

    python -m tools.structure_figures [DIRECTORY]

Generated files are left out. A line counts as code if it holds more than a comment or a docstring;
words are those of docstrings and comments. A private name of another package is an attribute or an
imported name that begins with one underscore. A place that keeps a time is a function of the server
with a parameter such as timeout_ms or deadline.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.sources import PACKAGES, SourceFile, import_graph, source_files

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_CONTRIB = Path("trainer/compat/contrib")
_TIMES = re.compile(r"(timeout|deadline|time_limit)(_ms|_seconds|_us)?")
# Classes that choose at run time, by what they measure, how the next request or step runs.
_CONTROLLERS = re.compile(
    r"SinglePollerMode|LatencyTracker|AdaptiveFastPath|RunLimit|ReturningClients|StepTrial"
)


def code_lines(file: SourceFile) -> int:
    """Return the number of lines that hold code, and not only comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in _docstrings(file):
        lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def prose(file: SourceFile) -> Iterator[str]:
    """Yield the text of each docstring and comment."""
    for node in _docstrings(file):
        yield str(node.value)
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#")


def private_names(file: SourceFile) -> set[str]:
    """Return the private names of other packages, such as `grpc._server`, that a file uses."""
    others: dict[str, str] = {}
    names: set[str] = set()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                others[(alias.asname or alias.name).partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                others[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    others = {k: v for k, v in others.items() if v.partition(".")[0] not in PACKAGES}
    names.update(v for v in others.values() if re.search(r"\._(?!_)", v))
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in others:
                names.add(f"{others[root.id]}.{node.attr}")
    return names


def _docstrings(file: SourceFile) -> Iterator[ast.Constant]:
    for node in ast.walk(file.tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value


def _keeps_a_time(file: SourceFile) -> int:
    return sum(
        any(_TIMES.fullmatch(argument.arg) for argument in _arguments(node))
        for _, node in file.definitions()
        if not isinstance(node, ast.ClassDef)
    )


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def main() -> None:
    """Print the figures of the directory that the command line names, or of the current one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    files = source_files(root)
    code = {file.path: code_lines(file) for file in files}
    total = sum(code.values())
    without = sum(n for path, n in code.items() if _CONTRIB not in path.parents)
    doc_lines = sum(
        (node.end_lineno or 0) - node.lineno + 1 for file in files for node in _docstrings(file)
    )
    words = Counter({file: sum(len(text.split()) for text in prose(file)) for file in files})
    importers = Counter(target for targets in import_graph(files).values() for target in targets)
    single = [f for f in files if not f.is_package and importers[f.module] == 1]
    names = set().union(*map(private_names, files))
    controllers = [
        name
        for file in files
        for name, node in file.definitions()
        if isinstance(node, ast.ClassDef) and _CONTROLLERS.fullmatch(name)
    ]
    of_server = [file for file in files if file.path.parts[0] == "server"]
    print(f"lines of code: {total}, without contrib {without}")
    print(f"words of docstrings and comments: {words.total()}")
    print(f"lines of docstrings a line of code: {doc_lines / total:.2f}")
    print(f"files: {len(files)}")
    print(f"folders: {len({file.path.parent for file in files})}")
    print(f"deepest folder below a package: {max(len(f.path.parts) for f in files) - 2}")
    print(f"modules with one importer: {len(single)}")
    print(f"private names of other packages: {len(names)}")
    print(f"functions of the server with a time limit: {sum(map(_keeps_a_time, of_server))}")
    print(f"controllers: {len(controllers)} {' '.join(controllers)}")


if __name__ == "__main__":
    main()
