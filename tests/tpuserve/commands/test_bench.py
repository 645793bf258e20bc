"""`tpuserve bench` measures real servers over sockets."""

import json
import socket
from pathlib import Path

import grpc
import pytest

from tests.tpuserve.client.reply_servers import Answer, over_grpc, over_http
from tpuserve import cli
from tpuserve.proto.open_inference import message_type

METADATA = Answer(
    200, b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], "outputs": []}'
)
OK = Answer(200, b'{"outputs": []}')
# With this tolerance, any three windows in a row agree that have answers.
BRIEFLY = (
    *("--window", "0.05", "--warm-up", "0.01", "--max-windows", "500", "--tolerance", "1000"),
)


def run_bench(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(["bench", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_sweep_has_a_row_for_each_number_of_clients(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "latency.svg"
    with over_http(METADATA, OK) as server:
        arguments = ("--model", "half", "--api", "v2", "--concurrency", "1", "3", *BRIEFLY)
        assert run_bench(server.url, *arguments, "--plot", str(picture)) == 0
        paths = {path for path, _, _ in server.requests}
    assert paths == {"/v2/models/half", "/v2/models/half/infer"}
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines()[3:5]] == ["1", "3"]
    for column in ("clients", "requests/s", "p50", "p99.9", "errors"):
        assert column in text
    assert "<svg" in picture.read_text()


def test_json_has_the_windows_of_an_open_loop(capsys: pytest.CaptureFixture[str]) -> None:
    metadata = message_type("ModelMetadataResponse")(name="half")
    metadata.inputs.add(name="x", datatype="INT32", shape=[-1])
    answers = (
        metadata.SerializeToString(),
        message_type("ModelInferResponse")().SerializeToString(),
    )
    with over_grpc(*answers) as handler:
        arguments = ("--model", "half", "--api", "v2", "--rate", "200", "--poisson", *BRIEFLY)
        assert run_bench(handler.url, *arguments, "--json", "--batch-size", "5") == 0
        request = message_type("ModelInferRequest").FromString(handler.calls[-1][1])
    assert list(request.inputs[0].shape) == [5]
    report = json.loads(capsys.readouterr().out)
    (result,) = report["results"]
    assert (result["rate"], result["concurrency"], result["errors"]) == (200, None, 0)
    assert len(result["windows"]) >= 3
    assert result["stable"] is True
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p99.9"]


def test_inputs_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text('{"x": [[7, 8]]}')
    with over_http(METADATA, OK) as server:
        arguments = ("--model", "half", "--api", "v2", "--concurrency", "1", *BRIEFLY)
        assert run_bench(server.url, *arguments, "--input", str(tmp_path / "inputs.json")) == 0
        assert server.requests[-1][1].endswith(b"\0\0\xe0@\0\0\0A")


def test_a_time_limit_may_be_infinite(capsys: pytest.CaptureFixture[str]) -> None:
    metadata = message_type("ModelMetadataResponse")(name="half")
    metadata.inputs.add(name="x", datatype="INT32", shape=[-1])
    answers = (
        metadata.SerializeToString(),
        message_type("ModelInferResponse")().SerializeToString(),
    )
    with over_http(METADATA, OK) as server, over_grpc(*answers) as handler:
        for url in (server.url, handler.url):
            arguments = ("--model", "half", "--api", "v2", "--concurrency", "1", *BRIEFLY)
            assert run_bench(url, *arguments, "--timeout", "inf", "--json") == 0
            (result,) = json.loads(capsys.readouterr().out)["results"]
            assert result["errors"] == 0


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 1) -> str:
    assert run_bench(*arguments) == status
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert text.startswith("Error: ")
    return text


def test_no_server_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        for scheme in ("http", "grpc"):
            url = f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
            text = error_of(capsys, url, "--model", "half")
            assert f"no server answers at {url}: " in text
            assert "Start it with `tpuserve serve`, or give the URL of a server that runs." in text


def test_a_refused_request_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    refused = Answer(400, b'{"error": "wrong\\nshape."}')
    with over_http(METADATA, refused) as server:
        text = error_of(capsys, server.url, "--model", "half", "--api", "v2", *BRIEFLY)
    assert "no request with concurrency 1 was answered: wrong shape. " in text
    with over_grpc(grpc.StatusCode.NOT_FOUND) as handler:
        assert "the reason" in error_of(capsys, handler.url, "--model", "half", *BRIEFLY)


def test_a_server_that_closes_connections_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    closing = Answer(200, b"{}", {"connection": "close"})
    with over_http(METADATA, closing) as server:
        arguments = ("--model", "half", "--api", "v2", "--concurrency", "2", *BRIEFLY)
        assert run_bench(server.url, *arguments, "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["errors"] == 0
    assert result["requests"] > 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--rate", "1", "--concurrency", "1"], "--concurrency and --rate are given"),
        (["--poisson"], "Give --rate too"),
        (["--shape", "x"], "'x' is not a valid NAME:SIZES"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(
    capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    command_line = ("http://localhost:1", "--model", "half", *arguments)
    assert text in error_of(capsys, *command_line, status=2)


def test_a_url_after_the_shapes_is_the_url(capsys: pytest.CaptureFixture[str]) -> None:
    command_line = ("--model", "half", "--shape", "x:1,28", "y:3", "http://127.0.0.1:1")
    assert "no server answers at http://127.0.0.1:1: " in error_of(capsys, *command_line)


def test_a_plot_that_cannot_be_written_is_refused_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for path, text in ((tmp_path / "a.txt", "no supported suffix"), ("/no/a.png", "Create it")):
        command_line = ("http://localhost:1", "--model", "half", "--plot", str(path))
        assert text in error_of(capsys, *command_line)
