"""The lines of several processes share one stream, and none is torn by another."""

import os
import subprocess
import sys
from collections import Counter

import pytest

pytestmark = pytest.mark.slow

# More than a pipe takes at once, as a client can make a line of the access log.
LENGTH, LINES, LETTERS = 20_000, 100, "abcd"
WRITE = f"""
import logging, sys
from server.process import logs
logs.configure_logging(is_shared=True)
for _ in range({LINES}):
    logging.getLogger("server.access").info(sys.argv[1] * {LENGTH})
"""


def test_long_lines_of_several_processes_stay_whole() -> None:
    reader, writer = os.pipe()
    running = [
        subprocess.Popen([sys.executable, "-c", WRITE, letter], stderr=writer) for letter in LETTERS
    ]
    os.close(writer)
    with open(reader) as stream:
        lines = Counter(stream.read().splitlines())
    assert lines == {letter * LENGTH: LINES for letter in LETTERS}
    assert [process.wait() for process in running] == [0] * len(LETTERS)
