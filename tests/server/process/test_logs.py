"""Lines that several processes write to one stream are never mixed with each other."""

import os
import subprocess
import sys
from collections import Counter

# Each line is longer than a pipe takes at once; a client's URL can make a line of the access log
# that long.
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


def test_text_of_a_client_cannot_look_like_a_line_of_the_log() -> None:
    program = """
import logging
from server.process import logs
logs.configure_logging()
try:
    raise ValueError("wrong")
except ValueError:
    logging.getLogger("server").exception("no model %s", "a\\r\\nb\\x1b[31m")
"""
    written = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True
    ).stderr.splitlines()
    assert written[0].endswith(r" E server: no model a\r\nb\x1b[31m")
    assert written[1] == "Traceback (most recent call last):"
    assert written[-1] == "ValueError: wrong"
