"""Lines that several processes write to one stream are never mixed with each other."""

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import datetime

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


def test_line_of_json_has_the_message_the_error_and_the_fields_of_the_access_log() -> None:
    program = """
import logging, warnings
from server.process import logs
from server.request_log.access_log import AccessLog
logs.configure_logging(is_json=True)
try:
    raise ValueError("wrong")
except ValueError:
    logging.getLogger("uvicorn.error").exception("no model %s", "a\\nb\\ud800")
token = logs.TRACE.set(lambda: ("1f", "2e"))
logging.getLogger("grpc._server").error("failed")
logs.TRACE.reset(token)
warnings.warn("old")
AccessLog().write("REST", "POST", path="/x\\ud800", status=200, duration_ms=1, trace=("1f", "2e"))
"""
    written = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True
    ).stderr
    failed, traced, warned, access = map(json.loads, written.splitlines())
    assert datetime.fromisoformat(failed.pop("time")).tzinfo is not None
    assert failed.pop("exception").endswith("ValueError: wrong")
    assert failed == {"level": "ERROR", "logger": "uvicorn.error", "message": "no model a\nb?"}
    assert (traced["message"], traced["trace_id"], traced["span_id"]) == ("failed", "1f", "2e")
    assert warned["logger"] == "py.warnings"
    assert "UserWarning: old" in warned["message"]
    assert (access["level"], access["logger"]) == ("INFO", "server.access")
    assert (access["path"], access["status"], access["trace_id"]) == ("/x?", 200, "1f")
