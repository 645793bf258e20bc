"""Draws docstrings and comments at random, for a reader who does not know the code.

    python -m tools.sample_prose SEED

Each of the 40 docstrings and 20 comments is printed with its file and qualified name, and without
the code that it describes. The same seed draws the same sample from the same code.
"""

import ast
import io
import random
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.sources import SourceFile, source_files

DOCSTRINGS = 40
COMMENTS = 20
_PRAGMA = re.compile(r"#\s*(type:|noqa|fmt:|ruff:|mypy:|!)")


@dataclass(frozen=True)
class Passage:
    """A docstring or a comment.

    Attributes:
      path: The file that holds the passage.
      name: The qualified name of the documented definition, or of the function that holds the
        comment.
      text: The text of the passage.
    """

    path: Path
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.path} · {self.name}\n{textwrap.indent(self.text, '    ')}\n"


def docstrings(file: SourceFile) -> Iterator[Passage]:
    """Yield the docstrings of a file's module, classes and functions, with their signatures."""
    if text := ast.get_docstring(file.tree):
        yield Passage(file.path, f"module {file.module}", text)
    for name, node in file.definitions():
        if text := ast.get_docstring(node):
            yield Passage(file.path, _heading(name, node), text)


def comments(file: SourceFile) -> Iterator[Passage]:
    """Yield the comments of a file. A comment of several lines is one passage."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type == tokenize.COMMENT:
            is_own_line = not token.line[: token.start[1]].strip()
            continues = block and is_own_line and token.start == _next_line(block[-1])
            if block and not continues:
                yield _comment(file, block)
                block = []
            if not _PRAGMA.match(token.string):
                block.append(token)
    if block:
        yield _comment(file, block)


def sample(root: Path, seed: int) -> list[Passage]:
    """Return the docstrings and comments that a seed draws from the packages below a root."""
    files = source_files(root)
    generator = random.Random(seed)
    return [
        *generator.sample([text for file in files for text in docstrings(file)], DOCSTRINGS),
        *generator.sample([text for file in files for text in comments(file)], COMMENTS),
    ]


def _heading(name: str, node: ast.AST) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {name}({bases})" if bases else f"class {name}"
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {name}({ast.unparse(node.args)}){returns}"


def _next_line(token: tokenize.TokenInfo) -> tuple[int, int]:
    return token.start[0] + 1, token.start[1]


def _comment(file: SourceFile, block: list[tokenize.TokenInfo]) -> Passage:
    line = block[0].start[0]
    holders = [
        name for name, node in file.definitions() if node.lineno <= line <= (node.end_lineno or 0)
    ]
    name = f"in {holders[-1]}" if holders else f"in module {file.module}"
    targets = [
        ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        for node in file.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.lineno <= block[-1].start[0] + 1 <= (node.end_lineno or 0) + 1
    ]
    if not holders and targets:
        name += f", at {targets[-1]}"
    return Passage(file.path, name, "\n".join(token.string for token in block))


def main() -> None:
    """Print the sample that the seed in the command line draws."""
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        raise SystemExit("usage: python -m tools.sample_prose SEED")
    for number, passage in enumerate(sample(Path.cwd(), int(sys.argv[1])), start=1):
        print(f"{number}. {passage}")


if __name__ == "__main__":
    main()
