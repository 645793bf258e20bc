"""Finished calls are in the metrics, and in the access log if the log is on."""

import json
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.dataplane import DataPlane
from server.metrics import Metrics
from tests.server.frontends.grpc import clients
from tests.server.frontends.grpc.clients import predict_request

PREDICT = "/tensorflow.serving.PredictionService/Predict"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


def counts(metrics: Metrics) -> dict[tuple[str, str], int]:
    """Return the number of counted requests: (model, status) → number."""
    requests = {}
    for line in metrics.exposition().decode().splitlines():
        if line.startswith(":tensorflow:serving:request_count{"):
            labels, value = line.split("{")[1].split("} ")
            model, status = (label.split("=")[1].strip('"') for label in labels.split(","))
            requests[model, status] = int(value)
    return requests


def fail(client: clients.Client, message: bytes = b"", **how: Any) -> None:
    with pytest.raises(grpc.RpcError):
        client.channel.unary_unary(PREDICT)(message, timeout=10, **how)


def test_calls_are_counted_with_their_model_and_status(dataplane: DataPlane) -> None:
    metrics = Metrics()
    with (
        clients.serving(dataplane, metrics=metrics) as server,
        clients.connect(server.address) as client,
    ):
        client.predict(x=[1.0])
        client.status(name="half")
        for spec in ({"name": "other"}, {"name": "half", "signature_name": "other"}):
            fail(client, predict_request(spec=spec, x=[1.0]).SerializeToString())
        assert counts(metrics) == {
            ("half", "OK"): 1,
            ("other", "NOT_FOUND"): 1,
            ("half", "FAILED_PRECONDITION"): 1,
        }
    text = metrics.exposition().decode()
    labels = 'API="Predict",entrypoint="GRPC",model_name="half"'
    assert f":tensorflow:serving:request_latency_count{{{labels}}} 1" in text


def test_calls_that_never_reach_a_model_are_counted(dataplane: DataPlane, tmp_path: Path) -> None:
    metrics, admission, file = Metrics(), AdmissionController(), tmp_path / "keys"
    file.write_text("secret\n")
    good = (("authorization", "Bearer secret"),)
    with (
        clients.serving(
            dataplane, metrics=metrics, admission=admission, keys=ApiKeys(file)
        ) as server,
        clients.connect(server.address) as client,
    ):
        fail(client, b"\xff", metadata=good)
        fail(client, metadata=good)
        fail(client, predict_request(x=[1.0]).SerializeToString())
        admission.drain()
        fail(client, predict_request(x=[1.0]).SerializeToString(), metadata=good)
    assert counts(metrics) == {
        ("", "INVALID_ARGUMENT"): 2,
        ("", "UNAUTHENTICATED"): 1,
        ("", "UNAVAILABLE"): 1,
    }


def test_access_log_has_a_line_for_each_call(
    dataplane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    request = predict_request(spec={"name": "half", "signature_name": "serving_default"}, x=[1.0])
    with (
        caplog.at_level(logging.INFO, logger="server.access"),
        clients.serving(dataplane, access_log=True) as server,
        clients.connect(server.address) as client,
    ):
        reply = client.prediction.Predict(request, timeout=10)
        client.status(name="half", version=3)
        fail(client, b"\xff")
    lines = [
        json.loads(record.message) for record in caplog.records if record.name == "server.access"
    ]
    names = ["method", "model", "version", "signature", "status", "bytes_in", "bytes_out"]
    first, second, third = ([line[name] for name in names] for line in lines)
    assert first == [
        PREDICT, "half", 3, "serving_default", "OK", request.ByteSize(), reply.ByteSize()
    ]  # fmt: skip
    assert second[:5] == [STATUS, "half", 3, "", "OK"]
    assert third == [PREDICT, "", None, "", "INVALID_ARGUMENT", 1, 0]
    for line in lines:
        assert line["protocol"] == "gRPC"
        assert line["peer"] == "127.0.0.1"
        assert line["duration_ms"] >= 0


def test_access_log_is_off_by_default(
    dataplane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO, logger="server.access"),
        clients.serving(dataplane) as server,
        clients.connect(server.address) as client,
    ):
        client.predict(x=[1.0])
    assert "server.access" not in {record.name for record in caplog.records}
