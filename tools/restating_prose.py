"""Lists docstrings, and their entries, that say little more than the names and types beside them.

    python -m tools.restating_prose [DIRECTORY]

An entry of Args or Attributes restates if at most one of its words is new: neither in its name and
type, nor in the name and the first line of its function. A docstring of a private function restates
if at most one of its words is not in the names and types of the function.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.sources import Definition, source_files

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can create each for from get has have if in into is it its make "
        "may no not of on one or return returns same set that the their then there these they this "
        "to used when where whether which who whose with",
    )
)
_ENTRY = re.compile(r"^  (\*{0,2}[\w., *]+):(.*(?:\n(?:    .*|\s*))*)", re.MULTILINE)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):\n", re.MULTILINE)
MAX_NEW_WORDS = 1


def word_stems(text: str) -> set[str]:
    """Return the words of a text without endings, stop words, case and underscores."""
    words = re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    stems = {re.sub(r"(ies|es|s|ed|ing|e|y)$", "", word) or word for word in words}
    return stems - {re.sub(r"(es|s|ed|ing|e|y)$", "", word) for word in _STOP_WORDS} - _STOP_WORDS


def signature_words(node: Definition) -> set[str]:
    """Return the words of a definition's name, arguments and types."""
    if isinstance(node, ast.ClassDef):
        return word_stems(node.name)
    text = " ".join([node.name, ast.unparse(node.args), ast.unparse(node.returns or ast.Tuple([]))])
    return word_stems(text)


def is_private(name: str) -> bool:
    """Return whether a qualified name has a part with a leading underscore that is no dunder."""
    return any(re.match(r"_(?!_)", part) for part in name.split("."))


def entries(docstring: str, section: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each entry of a section, such as Args, of a cleaned docstring."""
    parts = _SECTION.split(docstring)
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        if title == section:
            yield from ((name, body) for name, body in _ENTRY.findall(text))


def main() -> None:
    """Print file, line and text of what restates, and the number of words in all."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    words = 0
    for file in source_files(root):
        for name, node in file.definitions():
            docstring = ast.get_docstring(node)
            if docstring is None:
                continue
            first, known = docstring.partition("\n")[0], signature_words(node)
            if is_private(name) and len(word_stems(first) - known) <= MAX_NEW_WORDS:
                print(f"{file.path}:{node.lineno}: {name}: {first}")
                words += len(first.split())
            for section in ("Args", "Attributes"):
                for argument, text in entries(docstring, section):
                    new = word_stems(text) - known - word_stems(f"{first} {argument}")
                    if len(new) <= MAX_NEW_WORDS:
                        print(f"{file.path}:{node.lineno}: {name}: {argument}:{text.rstrip()}")
                        words += len(text.split())
    print(f"{words} words")


if __name__ == "__main__":
    main()
