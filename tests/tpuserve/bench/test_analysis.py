"""`tpuserve analyse` chooses the flags with the most requests per second within a latency goal."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpuserve import cli
from tpuserve.bench import analysis, configurations, rendering
from tpuserve.bench.analysis import Analysis, Choice, Goal, Plan
from tpuserve.bench.configurations import Configuration, ModelEngine
from tpuserve.bench.inputs import RequestInputs, Requests
from tpuserve.bench.load import Load
from tpuserve.bench.model_files import ModelFiles
from tpuserve.bench.windows import PERCENTILES, Procedure, Result
from tpuserve.errors import ServerNotStarted
from tpuserve.saved_model.signature import Signature

ENGINE = ModelEngine("plain", {"engine": "tensorflow"})
PLAIN = Configuration("plain", ENGINE, ENGINE.flags)
BATCHING = Configuration(
    "batching", ENGINE, {"enable_batching": True}, "max_batch_size { value: 32 }\n"
)


def result(clients: int, rate: float, p99_ms: float, num_errors: int = 0) -> Result:
    percentiles = dict.fromkeys(PERCENTILES, 1.0) | {99.0: p99_ms}
    return Result(Load(clients), rate, 1.0, percentiles, 100, num_errors, "", True, ())


ANALYSES = [
    Analysis(PLAIN, [result(1, 100, 5), result(4, 300, 15)]),
    Analysis(BATCHING, [result(1, 80, 9), result(4, 900, 30), result(16, 2000, 31, 1)]),
    Analysis(Configuration("broken", ENGINE, {}), error="no such engine"),
]


@pytest.mark.parametrize(
    ("limit_ms", "expected"), [(5, 100), (15, 300), (29, 300), (30, 900), (1000, 900), (4, None)]
)
def test_the_most_requests_within_the_goal_and_without_errors_are_chosen(
    limit_ms: float, expected: float | None
) -> None:
    choice = analysis.choose(ANALYSES, Goal(99.0, limit_ms))
    assert (choice and choice.result.requests_per_second) == expected


def test_the_leader_without_a_configuration_within_the_goal_has_the_lowest_latency() -> None:
    assert analysis.find_leader(ANALYSES, Goal(99.0, 30)) == ANALYSES[1]
    assert analysis.find_leader(ANALYSES[::-1], Goal(99.0, 4)) == ANALYSES[0]
    assert analysis.find_leader(ANALYSES[2:], Goal()) is None


def test_the_command_has_the_variables_the_flags_and_the_file() -> None:
    engine = replace(ENGINE, environment={"TPUSERVE_TPU_RUNTIME": "emulated"})
    choice = Choice(
        replace(ANALYSES[1], configuration=replace(BATCHING, engine=engine)), result(4, 900, 30)
    )
    assert rendering.format_choice(choice, Path("/m/a b"), 99.0).splitlines() == [
        "900 requests/s of 4 clients with a p99 of 30 ms:",
        "batching.config:",
        "  max_batch_size { value: 32 }",
        "",
        "  TPUSERVE_TPU_RUNTIME=emulated tpuserve serve '--model_name=a b' "
        "'--model_base_path=/m/a b' --enable_batching=true "
        "--batching_parameters_file=batching.config",
    ]


def test_configurations_with_the_same_error_share_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rendering.print_analyses([*ANALYSES, replace(ANALYSES[2], configuration=PLAIN)])
    assert "note: broken; plain: no such engine\n" in capsys.readouterr().out


def plan(seconds: float = 1000.0) -> Plan:
    model = ModelFiles(Path("half"), Path("half/1"), "s", Signature({}, {}), frozenset(), None)
    requests = Requests([RequestInputs({"x": np.zeros((2, 1), np.float32)})])
    loads = [Load(concurrency=1)]
    return Plan(model, requests, "", "rest", loads, Procedure(), Goal(99.0, 3.0), seconds)


def sweep(monkeypatch: pytest.MonkeyPatch, plan: Plan, fastest: str) -> list[Analysis]:
    """Sweep without servers: one configuration answers nine times as many requests as the others.

    The engine "broken" does not start.
    """
    engines = [ModelEngine(name, {"engine": name}) for name in ("broken", "tensorflow", "xla")]
    monkeypatch.setattr(configurations, "find_engines", lambda tag_sets: engines)
    monkeypatch.setattr(configurations, "num_processors", lambda: 1)

    def measure(_: Plan, configuration: Configuration, *__: Any) -> Analysis:
        if configuration.engine.name == "broken":
            raise ServerNotStarted("no such engine")
        rate = 900 if configuration.name == fastest else 100
        return Analysis(configuration, [result(1, rate, 2)])

    return analysis.analyse(plan, measure=measure)


def test_the_best_engine_is_measured_with_sizes_and_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines = ["broken", "tensorflow", "tensorflow, batching", "xla", "xla, batching"]
    # A request has two rows.
    batches = [f"xla, {rows} rows, {ms} ms" for rows in (16, 64) for ms in (0, 1)]
    for fastest in ("xla", "xla, batching"):
        names = [a.configuration.name for a in sweep(monkeypatch, plan(), fastest)]
        assert names == [*engines, *batches]
    analyses = sweep(monkeypatch, plan(), batches[2])
    # The batches are those of the engine that was best before, which all engines tie for.
    assert analyses[5].configuration.name == "tensorflow, 16 rows, 0 ms"
    assert analyses[0].error == "no such engine"
    assert plan().num_configurations == len(engines) + 1 + len(batches)


def test_nothing_is_measured_after_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    analyses = sweep(monkeypatch, plan(seconds=1e-9), "xla")
    measured = [a.configuration.name for a in analyses if a.results]
    assert measured == ["tensorflow"]
    late = "not measured within 1e-09 s. Give a longer --seconds."
    assert {a.error for a in analyses} == {"", "no such engine", late}


def test_the_expected_time_is_that_of_all_windows_or_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweep(monkeypatch, plan(), "xla")
    # Six with engines and four with timeouts; a start of 10 s and a load of 1 + 10 * 2 s each.
    assert plan(seconds=1000.0).expected_seconds == 10 * 31
    assert plan(seconds=60.0).expected_seconds == 60.0
    assert rendering.format_plan(plan(60.0)) == (
        "measuring up to 10 configurations with 1 load each: at most about 60 s"
    )


@pytest.mark.slow
def test_a_model_that_parses_examples_is_served_with_each_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.server.frontends.rest.console import exports

    engines = [ModelEngine(name, {"engine": name}) for name in ("steam", "tensorflow")]
    monkeypatch.setattr(configurations, "find_engines", lambda tag_sets: engines)
    exports.export(tmp_path / "forms" / "1")
    picture = tmp_path / "picture.png"
    # With this tolerance, any three windows in a row agree that have answers. The time is over when
    # one configuration is measured.
    briefly = ["--window", "0.05", "--warm-up", "0.01", "--max-windows", "500", "--seconds", "0.1"]
    arguments = ["analyse", str(tmp_path / "forms"), "--signature", "age_next_year"]
    arguments += ["--batch-size", "3", "--concurrency", "2", "--tolerance", "1000", *briefly]
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "--json", "--plot", str(picture)])
    printed = capsys.readouterr()
    assert caught.value.code == 0, printed.err
    assert "at most about 0 s" in printed.err
    report = json.loads(printed.out)
    first, second, third, *_ = report["configurations"]
    assert "steam" in first["error"]
    assert (second["error"], report["choice"]) == ("", "tensorflow")
    assert second["results"][0]["requests"] > 0
    assert second["results"][0]["errors"] == 0
    assert "not measured within" in third["error"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_directory_without_a_model_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["analyse", str(tmp_path)])
    assert caught.value.code == 1
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert str(tmp_path) in text
