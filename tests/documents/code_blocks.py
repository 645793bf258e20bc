"""Runs the code blocks of a document, and compares their output with the output in the document.

A Python block is followed by its output, in a text block. A console block contains commands, each
with its output. All blocks run in one directory, and all Python blocks run in one process.

$ python -m tests.documents.code_blocks docs/export.md DIRECTORY
prints the current output of all blocks, for an update of the document.
"""

import contextlib
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.preloaded.commands import preloaded_commands

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:```text\n(?P<output>.*?)^```\n)?"
    r"|^```console\n(?P<console>.*?)^```\n",
    re.M | re.S,
)
_COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.M)

# Mask the numbers that differ between runs: times, sizes, estimates and versions.
_NUMBER = re.compile(
    r"\d+(?:\.\d+)*(?:e[+-]?\d+)?(?: ?(?:ns|us|ms|s|B|kB|MB|GB)\b|[kMGTP]\b)?", re.ASCII
)
_VERSION = re.compile(r"\b\d{10}\b")
_ERROR = re.compile(r"Error: |tpuserve\.errors\.")
_FRAME = re.compile("[─│╭╮╰╯]+")

# The time limit of a command in seconds. No command takes nearly as long, even on a busy machine.
TIME_LIMIT = 600


@dataclass(frozen=True)
class Block:
    """Code or a command of a document.

    Attributes:
      line: The number of the first line, from 1.
      is_command: Whether the text is a shell command. Otherwise the text is Python code.
      text: The command or the code.
      output: The output in the document, or None if the document shows no output.
    """

    line: int
    is_command: bool
    text: str
    output: str | None

    def __str__(self) -> str:
        return f"line_{self.line}"


def read_blocks(document: Path) -> list[Block]:
    """Return the blocks of a document in order."""
    text = document.read_text()
    blocks = []
    for match in _BLOCK.finditer(text):
        if match["code"] is not None:
            line = _line_number(text, match.start("code"))
            blocks.append(Block(line, False, match["code"], match["output"]))
            continue
        start = match.start("console")
        blocks += [
            Block(
                _line_number(text, start + command.start()),
                True,
                command["command"],
                command["output"],
            )
            for command in _COMMAND.finditer(match["console"])
        ]
    return blocks


def run_blocks(document: Path, directory: Path) -> dict[str, str]:
    """Run all blocks, and return the output and the log lines of each block by its name.

    The output of a block that raises an exception ends with the exception.

    Args:
      document: The document.
      directory: The working directory of the blocks.
    """
    with _run_in(directory):
        return _run_in_order(read_blocks(document), directory / f"{document.stem}.py", directory)


def check_output(block: Block, outputs: Mapping[str, str]) -> None:
    """Assert that a block printed the output in the document, and no error beside it.

    Args:
      block: A block of the document.
      outputs: The result of `run_blocks`.
    """
    output = outputs[str(block)]
    if block.is_command:
        assert shows_all(block, output), output
        return
    assert shows_some(block, output), output
    if not _ERROR.search(block.output or ""):
        assert "Error: " not in output


@contextlib.contextmanager
def _run_in(directory: Path) -> Iterator[None]:
    """Change the working directory; restore it, and the level of TensorFlow's log, at the end."""
    logger = logging.getLogger("tensorflow")
    before, level = Path.cwd(), logger.level
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)
        logger.setLevel(level)


def _run_in_order(blocks: list[Block], source: Path, directory: Path) -> dict[str, str]:
    source.write_text(_python_source(blocks))
    program: dict[str, Any] = {}
    environment = _environment(directory)
    outputs = {}
    running = {}
    # Run the commands in two threads beside the code: each is a process, and no later block changes
    # what it reads.
    with preloaded_commands(directory / ".commands"), ThreadPoolExecutor(2) as commands:
        for block in blocks:
            if block.is_command:
                running[str(block)] = commands.submit(_run_command, block, directory, environment)
            else:
                outputs[str(block)] = _run_code(block, source, program)
    return outputs | {name: future.result() for name, future in running.items()}


def shows_all(block: Block, output: str) -> bool:
    """Return whether a block shows exactly the output of its command.

    Numbers (see `_NUMBER`) and line breaks may differ. "..." in the block matches any text.
    """
    return bool(
        re.fullmatch(_pattern(_mask_numbers(block.output or "")), " ".join(_mask_numbers(output)))
    )


def shows_some(block: Block, output: str) -> bool:
    """Return whether the output of code contains the lines of the block in order.

    A line that begins with spaces continues the previous line. "..." in the block matches any text.
    """
    lines = re.sub(r"\n +", " ", _VERSION.sub("#", block.output or "")).splitlines()
    pattern = ".*?".join(f"^{_pattern(line.split())}" for line in lines)
    return bool(re.search(pattern, _VERSION.sub("#", output), re.DOTALL | re.MULTILINE))


def _line_number(text: str, position: int) -> int:
    return text[:position].count("\n") + 1


def _python_source(blocks: list[Block]) -> str:
    """Return all Python code, each line at its line number in the document.

    Errors therefore name the lines of the document.
    """
    source = ""
    for block in blocks:
        if not block.is_command:
            source += "\n" * (block.line - 1 - source.count("\n")) + block.text
    return source


def _run_code(block: Block, source: Path, program: dict[str, Any]) -> str:
    out = io.StringIO()
    logger = logging.getLogger("tensorflow")
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logger.addHandler(handler)
    code = "\n" * (block.line - 1) + block.text
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(source), "exec"), program)
    except Exception as error:
        out.write(f"{type(error).__module__}.{type(error).__name__}: {error}")
    finally:
        logger.removeHandler(handler)
    return out.getvalue()


def _run_command(block: Block, directory: Path, environment: Mapping[str, str]) -> str:
    finished = subprocess.run(
        ["bash", "-c", block.text],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    return finished.stdout


def _environment(directory: Path) -> dict[str, str]:
    """Return an environment with 100 columns, without a TPU and with an empty cache."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("TPUSERVE_")
    }
    return {
        **inherited,
        "COLUMNS": "100",
        "PATH": os.pathsep.join(
            [str(directory / ".commands"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "XDG_CACHE_HOME": str(directory / "cache"),
    }


def _mask_numbers(text: str) -> list[str]:
    # A line break may separate a number from its unit.
    on_one_line = " ".join(_FRAME.sub(" ", text).split())
    return _NUMBER.sub("#", on_one_line).split()


def _pattern(words: list[str]) -> str:
    pattern = ""
    for word in words:
        if word == "..." and pattern:
            # Nothing at all needs no space before it.
            pattern += r"(?:\s+.*?)?"
            continue
        pattern += r"\s+" if pattern else ""
        pattern += re.escape(word).replace(r"\.\.\.", ".*?")
    return pattern


def _print_all(document: Path, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    outputs = run_blocks(document, directory)
    for block in read_blocks(document):
        prompt = "$ " if block.is_command else ""
        print(f"---- {block}: {prompt}{block.text.splitlines()[0]}")
        print(outputs[str(block)])


if __name__ == "__main__":
    _print_all(*(Path(argument).resolve() for argument in sys.argv[1:]))
