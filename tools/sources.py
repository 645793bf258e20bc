"""Reads the source files of the three packages, and their import graph, with ast."""

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

PACKAGES = ("tpuserve", "trainer", "server")
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class SourceFile:
    """A Python file of one of the packages.

    Attributes:
      path: The file, below the root of the repository.
      module: The dotted name that imports the file.
      text: The file's content.
    """

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path.relative_to(root)
        self.text = path.read_text(encoding="utf-8")
        parts = self.path.with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.module = ".".join(parts[:-1] if self.is_package else parts)

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    def definitions(self) -> Iterator[tuple[str, Definition]]:
        """Yield (qualified name, node) of each class and function; outer definitions come first."""
        yield from _definitions(self.tree, "")

    def imported_names(self) -> Iterator[tuple[str, str]]:
        """Yield (module, name) of each import at module level; the name is "" for `import x`.

        Imports inside functions and under TYPE_CHECKING are left out: they run later or never.
        """
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((node.module or "", alias.name) for alias in node.names)


def source_files(root: Path) -> list[SourceFile]:
    """Return the files of all packages, sorted by path, without generated files."""
    return [
        SourceFile(root, path)
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        if not path.name.endswith("_pb2.py")
    ]


def import_graph(files: list[SourceFile]) -> dict[str, set[str]]:
    """Return the import graph: module → the modules that it imports at module level."""
    modules = {file.module for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        targets = set()
        for module, name in file.imported_names():
            qualified = f"{module}.{name}" if name else module
            targets.add(qualified if qualified in modules else module)
        graph[file.module] = (targets & modules) - {file.module}
    return graph


def depth(graph: Mapping[str, set[str]]) -> int:
    """Return the number of nodes on the longest path of a graph; cycles count once."""
    depths: dict[str, int] = {}

    def visit(node: str, open_nodes: tuple[str, ...]) -> int:
        if node not in depths:
            below = [
                visit(target, (*open_nodes, node))
                for target in sorted(graph[node])
                if target not in open_nodes
            ]
            depths[node] = 1 + max(below, default=0)
        return depths[node]

    return max(visit(node, ()) for node in sorted(graph))


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from _definitions(child, f"{name}.")
        else:
            yield from _definitions(child, prefix)
