"""Detects scripts that run only as modules of a package: by `python -m NAME`, not by their path."""

import ast
from dataclasses import dataclass
from pathlib import Path

from trainer.compat.source import name_references
from trainer.compat.source.paths import OUR_PACKAGES
from trainer.migration.program.sources import SourceFile


@dataclass(frozen=True)
class PackageScript:
    """A script that runs only as a module of its package.

    Attributes:
      name: the module's name for the option -m, such as "trainer.task".
    """

    name: str
    root: Path


def find_package(script: SourceFile) -> PackageScript | None:
    """Find the package of a script that runs only as a module of its package.

    A script with relative imports runs only as a module, because Python does not know the package
    of a script that is run by its path.

    Returns:
      None if the script can be run by its path.
    """
    path = script.path.resolve()
    root = path.parent
    while (root / "__init__.py").is_file() and root.parent != root:
        root = root.parent
    optional_lines = name_references.find_optional_import_lines(script.tree)
    imports = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno not in optional_lines
    ]
    # A package need not have an __init__.py. Take the script's directory as a package if it has the
    # name of a package of tpuserve, and the script imports from a package of this name.
    if root == path.parent and root.name in OUR_PACKAGES and _any_imports(imports, root.name):
        root = root.parent
    dots = max((node.level for node in imports if isinstance(node, ast.ImportFrom)), default=0)
    while dots > len(path.relative_to(root).parts) - 1 and root.parent != root:
        root = root.parent
    *packages, last = path.relative_to(root).with_suffix("").parts
    is_ours = bool(packages) and packages[0] in OUR_PACKAGES
    if not dots and not (is_ours and _any_imports(imports, packages[0])):
        return None
    return PackageScript(".".join(packages if last == "__main__" else [*packages, last]), root)


def _any_imports(nodes: list[ast.Import | ast.ImportFrom], package: str) -> bool:
    return any(_imports_package(node, package) for node in nodes)


def _imports_package(node: ast.Import | ast.ImportFrom, package: str) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.split(".")[0] == package for alias in node.names)
    return not node.level and str(node.module).split(".")[0] == package
