"""Prints the test files of the rooms that differ from a revision.

    python -m tools.changed_tests origin/main

The tests of a room such as server/codec stand in tests/server/codec. Printed are the test files of
each room with a changed file, the test files that import a changed module or a module of the tests
that does, and changed test files. Any other changed file, such as a document, adds the test files
that contain its name.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

_PACKAGES = ("tpuserve", "trainer", "server")


def changed_files(revision: str) -> list[str]:
    """Return the files that differ from the common ancestor of a revision, or are untracked."""
    base = _git("merge-base", revision, "HEAD")[0]
    return [*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")]


def find_tests(files: list[str]) -> Iterator[Path]:
    """Yield the modules of tests to run after changes of some files, some of them repeatedly."""
    graph = grimp.build_graph(*_PACKAGES, "tests", cache_dir=None)
    for file in files:
        path = Path(file)
        if path.suffix != ".py" or path.parts[0] not in (*_PACKAGES, "tests"):
            yield from _tests_that_name(path.name)
            continue
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        if path.parts[0] != "tests":
            room = Path("tests", *path.parts[:-1][:2])
            yield from room.glob("test_*.py") if len(path.parts) == 2 else room.rglob("test_*.py")
        elif path.name.startswith("test_"):
            yield path
        if module in graph.modules:
            yield from _importing_tests(graph, module)


def _importing_tests(graph: grimp.ImportGraph, module: str) -> Iterator[Path]:
    """Yield the test files that import a module, directly or through other modules of tests."""
    pending, seen = [module], {module}
    while pending:
        for importer in graph.find_modules_that_directly_import(pending.pop()) - seen:
            if importer.startswith("tests."):
                seen.add(importer)
                pending.append(importer)
                yield Path(*importer.split(".")).with_suffix(".py")


def _tests_that_name(name: str) -> Iterator[Path]:
    yield from map(Path, _git("grep", "-l", "--fixed-strings", name, "--", "tests", check=False))


def _git(*arguments: str, check: bool = True) -> list[str]:
    result = subprocess.run(["git", *arguments], check=check, stdout=subprocess.PIPE, text=True)
    return result.stdout.splitlines()


def main() -> None:
    """Print the test files, one on each line."""
    tests = {
        path for path in find_tests(changed_files(sys.argv[1])) if path.name.startswith("test_")
    }
    print("\n".join(sorted(str(path) for path in tests if path.exists())))


if __name__ == "__main__":
    main()
