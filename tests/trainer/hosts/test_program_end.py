import subprocess
import sys

import pytest

_PROGRAM = """
import atexit, sys, threading
from trainer.hosts import program_end

program_end.watch()
program_end.watch()
atexit.register(lambda: print(program_end.has_failed()))
"""


@pytest.mark.parametrize(
    ("ending", "has_failed"),
    [
        ("", False),
        ("sys.exit()", False),
        ("sys.exit(0)", False),
        ("sys.exit('an error')", True),
        ("sys.exit(3)", True),
        ("exit(code=1)", True),
        ("1 / 0", True),
        ("try:\n    sys.exit(1)\nexcept SystemExit:\n    sys.exit(0)", False),
        ("threading.Thread(target=sys.exit, args=[1]).start()", False),
    ],
)
def test_an_exit_handler_learns_whether_the_program_fails(ending: str, has_failed: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM + ending],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.stdout == f"{has_failed}\n", ended.stderr
    assert (ended.returncode != 0) == has_failed
