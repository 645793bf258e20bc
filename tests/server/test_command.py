"""The help of the commands lists all flags, and invalid flags are refused."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from server import app, command
from server.command import serve
from server.config import flags
from server.config.model_config import ModelConfig
from server.config.settings import Settings
from server.process.signals import StopSignals
from tpuserve.errors import InvalidSetting, ModelsNotAvailable


def test_help_tells_every_flag() -> None:
    text = CliRunner().invoke(serve, ["--help"]).output
    assert "serve [OPTIONS] [[NAME=]PATH]..." in text
    for option in serve.params[1:]:
        assert option.opts[0] in text
        assert getattr(option, "help", None)


def test_rest_default_is_told_to_differ_from_tensorflow_serving() -> None:
    assert "0 turns REST off (TensorFlow Serving's default is 0)" in " ".join(
        CliRunner().invoke(serve, ["--help"]).output.split()
    )


@pytest.mark.slow
def test_tensorflow_stays_out_until_a_model_is_loaded() -> None:
    code = (
        "import sys, server.app, server.command, server.frontends.rest.app;"
        "import server.frontends.rest.transport.server;"
        "sys.exit('tensorflow' in sys.modules or 'grpc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_command_is_imported_without_a_web_framework() -> None:
    code = (
        "import sys, server.command; sys.exit('fastapi' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Runs:
    """Records the settings with which the commands would run a server."""

    def __init__(self) -> None:
        self.settings: list[Settings] = []
        self.ignored_flags: list[str] = []
        self.variables: list[Sequence[str]] = []
        self.error: Exception | None = None

    def __call__(
        self,
        settings: Settings,
        load: None = None,
        ignored: Sequence[str] = (),
        variables: Sequence[str] = (),
        signals: StopSignals | None = None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings.append(settings)
        self.variables.append(variables)
        self.ignored_flags += ignored
        if self.error is not None:
            raise self.error


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(app, "run", runs)
    return runs


BASE = "--model_base_path=/models/half"


def run_model_server(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize(
    ("arguments", "is_on"),
    [
        (["--enable_batching"], True),
        (["--enable_batching=true"], True),
        (["--enable_batching", "1"], True),
        (["--enable_batching=False"], False),
        (["--enable_batching", "0"], False),
        (["--enable_batching=Auto"], "auto"),
    ],
)
def test_truth_is_spelled_in_every_way(runs: Runs, arguments: list[str], is_on: bool | str) -> None:
    assert run_model_server(*arguments, BASE) == 0
    assert CliRunner().invoke(serve, [BASE, *arguments]).exit_code == 0
    assert [setting.enable_batching for setting in runs.settings] == [is_on, is_on]


def test_every_flag_is_taken_in_both_spellings(runs: Runs) -> None:
    values = {"int": "1", "float": "1", "bool": "false", "auto": "auto", "text": "/x"}
    arguments = {name: values[flag.value_type] for name, flag in flags.FLAGS.items()}
    arguments.update(
        port="8500", rest_api_port="8501", enable_batching="true", mixed_precision="", engine="xla"
    )
    arguments.update(tensorflow_session_parallelism="0", otlp_endpoint="http://localhost:4317")
    arguments.update(predict_route="/p", health_route="/h", max_model_memory="8GB")
    arguments.update(model_signature_policy="require", log_format="json")
    pairs = [item for name, value in arguments.items() for item in (f"--{name}", value)]
    assert run_model_server(*[f"--{name}={value}" for name, value in arguments.items()]) == 0
    assert run_model_server(*pairs) == 0
    assert runs.settings[0] == runs.settings[1]


def test_ops_to_import_are_divided_by_commas_and_by_flags(runs: Runs) -> None:
    run_model_server(BASE, "--import_ops=my_ops,/ops/a.so", "--import_ops", "/ops/b.so")
    run_model_server(BASE)
    imported = [settings.import_ops for settings in runs.settings]
    assert imported == [("my_ops", "/ops/a.so", "/ops/b.so"), ()]


def test_stand_in_has_rest_off_and_serve_has_it_on(runs: Runs) -> None:
    run_model_server(BASE)
    CliRunner().invoke(serve, [BASE])
    assert [setting.rest_api_port for setting in runs.settings] == [0, 8501]


@pytest.mark.parametrize(
    "arguments", [["--model_base_path=models/half"], ["--model_base_path", "models/half"]]
)
def test_relative_base_path_is_resolved_by_serve_and_refused_by_the_stand_in(
    runs: Runs, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert CliRunner().invoke(serve, arguments).exit_code == 0
    assert runs.settings == [Settings(Path.cwd() / "models" / "half", base_paths_required=True)]
    assert run_model_server(*arguments) == 255
    assert "must be an absolute path" in capsys.readouterr().out


def test_base_path_that_is_a_uri_is_not_resolved(runs: Runs) -> None:
    assert CliRunner().invoke(serve, ["--model_base_path=file:///models/half"]).exit_code == 0
    assert runs.settings == [Settings(Path("/models/half"), base_paths_required=True)]


VERTEX = {
    "AIP_HTTP_PORT": "9000",
    "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
    "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
    "AIP_STORAGE_URI": "/models/half",
}


@pytest.mark.parametrize("start", ["serve", "stand-in"])
def test_environment_of_a_cloud_service_sets_flags_that_are_not_given(
    runs: Runs, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in VERTEX.items():
        monkeypatch.setenv(name, value)
    for arguments in ([], ["--rest_api_port=8502", "--model_base_path=/other"]):
        if start == "serve":
            CliRunner().invoke(serve, arguments)
        else:
            run_model_server(*arguments)
    from_environment, with_flags = runs.settings
    assert from_environment.model_base_path == Path("/models/half")
    assert from_environment.rest_api_port == 9000
    assert from_environment.predict_route == VERTEX["AIP_PREDICT_ROUTE"]
    assert from_environment.health_route == VERTEX["AIP_HEALTH_ROUTE"]
    assert (with_flags.model_base_path, with_flags.rest_api_port) == (Path("/other"), 8502)
    assert with_flags.predict_route == VERTEX["AIP_PREDICT_ROUTE"]
    routes = [
        f"--predict_route={VERTEX['AIP_PREDICT_ROUTE']} (AIP_PREDICT_ROUTE)",
        f"--health_route={VERTEX['AIP_HEALTH_ROUTE']} (AIP_HEALTH_ROUTE)",
    ]
    model, port = "--model_base_path=/models/half (AIP_STORAGE_URI)", "--rest_api_port=9000"
    assert runs.variables == [[model, *routes, f"{port} (AIP_HTTP_PORT)"], routes]


def test_model_config_file_replaces_the_model_of_the_environment(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEMAKER_BIND_TO_PORT", "8080")
    CliRunner().invoke(serve, ["--model_config_file=/models.config"])
    (settings,) = runs.settings
    assert (settings.model_base_path, settings.predict_route) == (None, "/invocations")


def test_only_serve_requires_that_a_base_path_exists(runs: Runs) -> None:
    assert CliRunner().invoke(serve, [BASE]).exit_code == 0
    assert run_model_server(BASE) == 0
    assert [settings.base_paths_required for settings in runs.settings] == [True, False]


def test_paths_are_served_without_flags_and_beside_others(runs: Runs) -> None:
    arguments = ["models/half", "cats=gs://bucket/cats", "--rest_api_port=8080"]
    assert CliRunner().invoke(serve, arguments).exit_code == 0
    (settings,) = runs.settings
    assert settings.models == (
        ModelConfig("half", f"{Path.cwd()}/models/half"),
        ModelConfig("cats", "gs://bucket/cats"),
    )
    assert (settings.model_name, settings.rest_api_port) == ("half", 8080)
    assert settings.base_paths_required


@pytest.mark.parametrize(
    ("arguments", "is_on"),
    [
        (["--enable_batching", "half"], True),
        (["--enable_batching", "false", "half"], False),
        (["half", "--enable_batching"], True),
        (["--enable_batching", "auto", "half"], "auto"),
        (["--access_log", "half"], "auto"),
    ],
)
def test_path_may_follow_a_boolean_flag(
    runs: Runs, arguments: list[str], is_on: bool | str
) -> None:
    CliRunner().invoke(serve, arguments)
    (settings,) = runs.settings
    assert ([model.name for model in settings.models], settings.enable_batching) == (
        ["half"],
        is_on,
    )


def test_paths_replace_the_model_of_the_environment(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in VERTEX.items():
        monkeypatch.setenv(name, value)
    CliRunner().invoke(serve, ["/models/other"])
    (settings,) = runs.settings
    assert (settings.model_base_path, settings.model_name) == (None, "other")
    assert settings.rest_api_port == 9000


@pytest.mark.parametrize(
    "flag", ["--model_name=a", BASE, "--model_config_file=/models.config", "--sample"]
)
def test_path_beside_a_flag_that_names_a_model_is_refused(flag: str) -> None:
    error = CliRunner().invoke(serve, ["/models/cats", flag]).exception
    assert isinstance(error, InvalidSetting)
    name = flag.partition("=")[0]
    assert str(error) == (
        f"the argument /models/cats and {name} both say what to serve. Give the arguments without "
        f"{name}, as: tpuserve serve cats=/models/cats"
    )


def test_shell_completes_paths() -> None:
    (item,) = serve.params[0].shell_complete(click.Context(serve), "half")
    assert item.type == "file"


def test_serve_without_a_base_path_is_refused() -> None:
    error = CliRunner().invoke(serve, []).exception
    assert isinstance(error, InvalidSetting)
    assert str(error) == (
        "there is no model to serve: --model_base_path and --model_config_file are empty. Give the "
        "path of a model, as: tpuserve serve /models/half"
    )


def test_stand_in_passes_over_unknown_arguments(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_model_server("--nonsense=3", BASE, "word") == 0
    output = capsys.readouterr().out
    assert output.startswith("unknown argument: --nonsense=3\nunknown argument: word\nusage: ")
    assert runs.settings == [Settings(Path("/models/half"), rest_api_port=0, enable_batching=False)]


@pytest.mark.parametrize("arguments", [["--help"], ["--port=x", BASE], ["--enable_batching=2"], []])
def test_stand_in_shows_its_usage_where_it_cannot_start(
    runs: Runs, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run_model_server(*arguments) == 255
    output = capsys.readouterr().out
    assert "usage: tpuserve-model-server\nFlags:\n\t--" in output
    assert all(f"--{name}=" in output for name in flags.FLAGS)
    assert not runs.settings


def test_stand_in_tells_a_failed_start_as_scripts_know_it(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.error = ModelsNotAvailable("1 servable(s) did not become available: {}")
    assert run_model_server(BASE) == 255
    assert capsys.readouterr().out == (
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: {}\n"
    )


def test_stand_in_skips_rest_on_the_port_of_grpc(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_model_server(BASE, "--port=9000", "--rest_api_port=9000") == 0
    assert "Skipped exporting HTTP/REST API" in capsys.readouterr().err
    assert runs.settings[0].rest_api_port == 0


def test_what_is_no_truth_is_told_with_what_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_model_server("--enable_batching=maybe", BASE) == 255
    output = capsys.readouterr().out
    assert (
        "'--enable_batching': 'maybe' is not a boolean. Give true, false, 1, 0 or auto." in output
    )


def test_signals_are_those_of_before_after_the_command(runs: Runs) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run_model_server(BASE)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signal_before_anything_is_imported_ends_it_well() -> None:
    code = (
        "import os, signal, sys, server.command as command\n"
        "class Import:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'server.app':\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.meta_path.insert(0, Import())\n"
        "command.main(['--model_base_path=/models/half'])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_version_names_the_server_tensorflow_and_the_api_as_documented(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_model_server("--version") == 0
    output = capsys.readouterr().out
    assert f"TensorFlow ModelServer: {version('tpuserve')} (tpuserve)\n" in output
    assert f"TensorFlow Library: {version('tensorflow')}\n" in output
    assert f"TensorFlow Serving API: {version('tensorflow-serving-api')}\n" in output
    assert CliRunner().invoke(serve, ["--version"]).output == output
    document = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
    _, _, block = document.partition("$ tpuserve-model-server --version\n")
    assert mask_versions(block.partition("```")[0]) == mask_versions(output)


def mask_versions(text: str) -> str:
    return re.sub(r"\d+(\.\d+)+((a|b|rc|\.dev)\d+)?", "VERSION", text)


def test_versions_of_pre_releases_are_masked_too() -> None:
    assert (
        mask_versions("2.22.0rc0, 2.22.0 and 2.23.0.dev20261129") == "VERSION, VERSION and VERSION"
    )


def test_flags_without_effect_are_handed_on(runs: Runs) -> None:
    run_model_server(BASE, "--flush_filesystem_caches=false", "--port=1")
    assert runs.ignored_flags == ["flush_filesystem_caches"]


def test_serve_tells_the_reason_alone_where_there_is_but_one(runs: Runs) -> None:
    runs.error = ModelsNotAvailable("1 servable(s) did not become available: {}")
    assert CliRunner().invoke(serve, [BASE]).exception is runs.error
    runs.error.__cause__ = InvalidSetting("no such tags")
    assert str(CliRunner().invoke(serve, [BASE]).exception) == "no such tags"
