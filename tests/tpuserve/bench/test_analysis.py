"""`tpuserve analyse` chooses the flags with the most requests per second within a latency goal."""

import json
from pathlib import Path

import pytest

from tpuserve import cli
from tpuserve.bench import analysis, rendering
from tpuserve.bench.analysis import Analysis, Choice, Configuration
from tpuserve.bench.load import Load
from tpuserve.bench.windows import PERCENTILES, Result

PLAIN = Configuration("plain", {"engine": "tensorflow"})
BATCHING = Configuration("batching", {"enable_batching": True}, "max_batch_size { value: 32 }\n")


def result(clients: int, rate: float, p99_ms: float, num_errors: int = 0) -> Result:
    percentiles = dict.fromkeys(PERCENTILES, 1.0) | {99.0: p99_ms}
    return Result(Load(clients), rate, 1.0, percentiles, 100, num_errors, "", True, ())


ANALYSES = [
    Analysis(PLAIN, [result(1, 100, 5), result(4, 300, 15)]),
    Analysis(BATCHING, [result(1, 80, 9), result(4, 900, 30), result(16, 2000, 31, 1)]),
    Analysis(Configuration("broken", {}), error="no such engine"),
]


@pytest.mark.parametrize(
    ("limit_ms", "expected"), [(5, 100), (15, 300), (29, 300), (30, 900), (1000, 900), (4, None)]
)
def test_the_most_requests_within_the_goal_and_without_errors_are_chosen(
    limit_ms: float, expected: float | None
) -> None:
    choice = analysis.choose(ANALYSES, 99.0, limit_ms)
    assert (choice and choice.result.requests_per_second) == expected


def test_the_command_has_the_flags_and_the_file() -> None:
    text = rendering.format_choice(Choice(ANALYSES[1], result(4, 900, 30)), Path("/m/a b"), 99.0)
    assert text.splitlines() == [
        "900 requests/s of 4 clients with a p99 of 30 ms:",
        "batching.config:",
        "  max_batch_size { value: 32 }",
        "",
        "  tpuserve serve '--model_name=a b' '--model_base_path=/m/a b' --enable_batching=true "
        "--batching_parameters_file=batching.config",
    ]


def test_each_engine_is_measured_with_and_without_batching() -> None:
    names = [configuration.name for configuration in analysis.configurations()]
    assert names[:3] == ["tensorflow", "tensorflow, batching", "tensorflow, batching with timeout"]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_a_model_is_served_with_each_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import models

    timeout = analysis.configurations()[2]
    broken = Configuration("broken", {"engine": "steam"})
    monkeypatch.setattr(analysis, "configurations", lambda: [broken, timeout])
    base = models.export(models.half_plus_two, tmp_path / "half").parent
    picture = tmp_path / "picture.png"
    # With this tolerance, any three windows in a row agree that have answers.
    briefly = ["--window", "0.05", "--warm-up", "0.01", "--max-windows", "500"]
    arguments = ["analyse", str(base), "--concurrency", "2", "--tolerance", "1000", *briefly]
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "--json", "--plot", str(picture)])
    assert caught.value.code == 0
    report = json.loads(capsys.readouterr().out)
    first, second = report["configurations"]
    assert "steam" in first["error"]
    assert (second["error"], report["choice"]) == ("", timeout.name)
    assert second["results"][0]["requests"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_directory_without_a_model_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "configurations", lambda: [PLAIN])
    with pytest.raises(SystemExit) as caught:
        cli.main(["analyse", str(tmp_path)])
    assert caught.value.code == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert str(tmp_path) in text
