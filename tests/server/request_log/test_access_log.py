"""A line of the access log contains the client, the request and the outcome."""

import json
from datetime import datetime

import pytest

from server.request_log.access_log import AccessLog

METHOD = "/tensorflow.serving.PredictionService/Predict"


def read_last_entry(caplog: pytest.LogCaptureFixture) -> dict[str, object]:
    entry: dict[str, object] = json.loads(caplog.records[-1].getMessage())
    return entry


def test_line_has_all_that_is_known(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "server.access")
    AccessLog().write(
        "gRPC",
        METHOD,
        model="half",
        version=3,
        signature="serving_default",
        status="OK",
        duration_ms=1.23456,
        peer="10.0.0.1",
        bytes_in=12,
        bytes_out=34,
    )
    line = read_last_entry(caplog)
    assert datetime.fromisoformat(str(line.pop("time"))).tzinfo is not None
    assert line == {
        "protocol": "gRPC",
        "peer": "10.0.0.1",
        "method": METHOD,
        "path": "",
        "model": "half",
        "version": 3,
        "signature": "serving_default",
        "status": "OK",
        "duration_ms": 1.235,
        "bytes_in": 12,
        "bytes_out": 34,
    }


def test_name_that_is_no_unicode_is_still_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "server.access")
    AccessLog().write("REST", "POST", signature="a\ud800", status=400, duration_ms=1)
    assert read_last_entry(caplog)["signature"] == "a?"
