"""Finds the field at a position of a protobuf text, for the error messages about the text."""

import re

# Matches the tokens of protobuf's text form from which `find_field` determines the current field:
# comments and strings, which are skipped; names, and text in brackets, which is the type of an Any
# or a list of values; the beginnings and ends of messages; and the colon before a value.
_TOKEN = re.compile(
    r"""(?P<skipped>\#[^\n]*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)
    |(?P<name>[A-Za-z_]\w*|\[[\w./\s-]*\]?)|(?P<sign>[{}<>:])|\S""",
    re.VERBOSE,
)


def find_field(text: str, line: int, column: int) -> str:
    """Return the path of the field at a position, such as "model_config_list.config.name".

    Returns:
      The names of the enclosing fields and of the field, joined by "."; "" if the position is
      outside of all fields.
    """
    lines = text.splitlines(keepends=True)
    end = sum(map(len, lines[: line - 1])) + column
    parents: list[str] = []
    field, previous = "", ""
    for token in _TOKEN.finditer(text):
        if token.start() >= end:
            break
        if token["name"] and previous != ":":
            field = token["name"].strip("[] \n")
        elif token["sign"] and token["sign"] in "{<":
            parents.append(field)
            field = ""
        elif token["sign"] and token["sign"] in "}>":
            field = ""
            del parents[-1:]
        if not token["skipped"] or previous == ":":
            previous = token[0]
    return ".".join(filter(None, [*parents, field]))
