"""Programs that are modules of a package, and are run by `python -m`."""

import ast
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source.paths import OUR_PACKAGES
from trainer.migration.names import other_modules
from trainer.migration.program.sources import Source


@dataclass(frozen=True)
class PackagePart:
    """A module that runs as such alone.

    Attributes:
      name: as `python -m` has it: "trainer.task".
      root: the directory in which the package is.
    """

    name: str
    root: Path


def of(script: Source) -> PackagePart | None:
    """Where in a package a script is; None where it runs by its path.

    It does not if it imports from its own package by dots, nor if its package has the name of one
    of ours, and it imports from there by that name.
    """
    path = script.path.resolve()
    root = path.parent
    while (root / "__init__.py").is_file() and root.parent != root:
        root = root.parent
    tried = other_modules.tried_lines(script.tree)
    imports = [
        each
        for each in ast.walk(script.tree)
        if isinstance(each, ast.Import | ast.ImportFrom) and each.lineno not in tried
    ]
    # A package need not have an __init__.py.
    if root == path.parent and root.name in OUR_PACKAGES and _import(imports, root.name):
        root = root.parent
    dots = max((each.level for each in imports if isinstance(each, ast.ImportFrom)), default=0)
    while dots > len(path.relative_to(root).parts) - 1 and root.parent != root:
        root = root.parent
    *packages, last = path.relative_to(root).with_suffix("").parts
    is_ours = bool(packages) and packages[0] in OUR_PACKAGES
    if not dots and not (is_ours and _import(imports, packages[0])):
        return None
    return PackagePart(".".join(packages if last == "__main__" else [*packages, last]), root)


def _import(nodes: list[ast.Import | ast.ImportFrom], package: str) -> bool:
    return any(_is_of(each, package) for each in nodes)


def _is_of(node: ast.Import | ast.ImportFrom, package: str) -> bool:
    if isinstance(node, ast.Import):
        return any(each.name.split(".")[0] == package for each in node.names)
    return not node.level and str(node.module).split(".")[0] == package
