"""docs/operations.md explains every line that the server logs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("server", "tpuserve/pjrt", "tpuserve/runtime")
# Method of a logger → the first word of the headings in the document.
LEVELS = {
    "info": "Information",
    "warning": "Warnings",
    "error": "Errors",
    "exception": "Errors",
}


def logged_lines() -> Iterator[tuple[str, str]]:
    """Yield (line, level) of each call of a logger, with "..." for the arguments."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            # Parse only the files that log: parsing takes long.
            for node in ast.walk(ast.parse(text)) if "logger" in text else ():
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and getattr(node.func.value, "id", "") == "logger"
                    and isinstance(node.args[0], ast.Constant)
                ):
                    line = re.sub(r"%(\.\d+)?[a-z]", "...", str(node.args[0].value))
                    # Skip a line that consists of arguments only: the document cannot list its
                    # text.
                    if re.search("[a-z]", line):
                        yield line, LEVELS[node.func.attr]


def test_every_line_that_the_server_logs_is_explained() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    explained = {
        (line, section.split()[0])
        for section in re.split("^#+ ", text, flags=re.M)
        for line in re.findall("`([^`]+)`", section)
    }
    assert set(logged_lines()) - explained == set()
