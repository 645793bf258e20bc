"""The blocks of a document: read, run from top to bottom, and compared with what they show.

A block of Python is followed by what it prints, in a block of text. A block of a console has
commands, each with its output. All run in one directory, those of Python in one process.

$ python -m tests.document_blocks docs/export.md DIRECTORY
prints what the blocks of a document give, so that it can be written into it.
"""

import contextlib
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:```text\n(?P<output>.*?)^```\n)?"
    r"|^```console\n(?P<console>.*?)^```\n",
    re.M | re.S,
)
_COMMAND = re.compile(r"^\$ (?P<command>.*(?:\\\n.*)*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.M)

# What another run may find otherwise: times, sizes, estimates, versions.
_NUMBER = re.compile(
    r"\d+(?:\.\d+)*(?:e[+-]?\d+)?(?: ?(?:ns|us|ms|s|B|kB|MB|GB)\b|[kMGTP]\b)?", re.ASCII
)
_VERSION = re.compile(r"\b\d{10}\b")
_FRAME = re.compile("[─│╭╮╰╯]+")

# Of what hangs: nothing that works comes near, on a machine that others keep busy either.
TIME_LIMIT = 600


@dataclass(frozen=True)
class Block:
    """Code or a command of a document.

    Attributes:
      line: its first, from 1.
      is_command: whether a shell runs it; else it is Python.
      text: what is run.
      output: what it shows; None where it shows nothing.
    """

    line: int
    is_command: bool
    text: str
    output: str | None

    def __str__(self) -> str:
        return f"line_{self.line}"


def read(document: Path) -> list[Block]:
    """The blocks of a document, in order."""
    text = document.read_text()
    blocks = []
    for each in _BLOCK.finditer(text):
        if each["code"] is not None:
            blocks.append(Block(_line(text, each.start("code")), False, each["code"], each[2]))
            continue
        start = each.start("console")
        blocks += [
            Block(_line(text, start + command.start()), True, command["command"], command["output"])
            for command in _COMMAND.finditer(each["console"])
        ]
    return blocks


def run(document: Path, directory: Path) -> dict[str, str]:
    """What each block prints and logs, by its name; if it has raised, that comes last.

    The working directory has to be the one given, for the Python in this process.
    """
    blocks = read(document)
    source = directory / f"{document.stem}.py"
    source.write_text(_source(blocks))
    program: dict[str, Any] = {}
    environment = _environment(directory)
    printed = {}
    running = {}
    # A command is a process of its own, and needs nothing of the blocks that come after it.
    with ThreadPoolExecutor(2) as commands:
        for each in blocks:
            if each.is_command:
                running[str(each)] = commands.submit(_run_command, each, directory, environment)
            else:
                printed[str(each)] = _run_code(each, source, program)
    return printed | {name: each.result() for name, each in running.items()}


def shows_all(block: Block, found: str) -> bool:
    """Whether a command has printed what stands below it, in the same words; see `_NUMBER`.

    Lines may be broken elsewhere. "..." stands for any text.
    """
    return bool(re.fullmatch(_pattern(_masked(block.output or "")), " ".join(_masked(found))))


def shows_some(block: Block, found: str) -> bool:
    """Whether code has printed and logged the lines below it, maybe with others between them.

    A line that begins with spaces goes on with the one before. "..." stands for any text.
    """
    lines = re.sub(r"\n +", " ", _VERSION.sub("#", block.output or "")).splitlines()
    shown = ".*?".join(f"^{_pattern(each.split())}" for each in lines)
    return bool(re.search(shown, _VERSION.sub("#", found), re.DOTALL | re.MULTILINE))


def _line(text: str, position: int) -> int:
    return text[:position].count("\n") + 1


def _source(blocks: list[Block]) -> str:
    """All the Python, at the lines that it has in the document: errors name these."""
    source = ""
    for each in blocks:
        if not each.is_command:
            source += "\n" * (each.line - 1 - source.count("\n")) + each.text
    return source


def _run_code(block: Block, source: Path, program: dict[str, Any]) -> str:
    out = io.StringIO()
    logger = logging.getLogger("tensorflow")
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logger.addHandler(handler)
    placed = "\n" * (block.line - 1) + block.text
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(placed, str(source), "exec"), program)
    except Exception as error:
        out.write(f"{type(error).__module__}.{type(error).__name__}: {error}")
    finally:
        logger.removeHandler(handler)
    return out.getvalue()


def _run_command(block: Block, directory: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", block.text],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    return done.stdout


def _environment(directory: Path) -> dict[str, str]:
    """A terminal of 100 columns, with no TPU, and with what was compiled here alone."""
    kept = {name: each for name, each in os.environ.items() if not name.startswith("TPUSERVE_")}
    return {
        **kept,
        "COLUMNS": "100",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(directory / "cache"),
    }


def _masked(text: str) -> list[str]:
    # A line may have been broken between a number and its unit.
    on_one_line = " ".join(_FRAME.sub(" ", text).split())
    return _NUMBER.sub("#", on_one_line).split()


def _pattern(words: list[str]) -> str:
    return r"\s+".join(re.escape(each).replace(r"\.\.\.", ".*?") for each in words)


def _print_all(document: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    found = run(document, directory)
    for each in read(document):
        print(f"---- {each}: {'$ ' if each.is_command else ''}{each.text.splitlines()[0]}")
        print(found[str(each)])


if __name__ == "__main__":
    _print_all(*(Path(each).resolve() for each in sys.argv[1:]))
