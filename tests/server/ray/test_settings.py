"""The flags of a deployment of Ray are those of the server, except those without effect in it."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from server.config.flags import FLAGS
from server.ray.settings import EFFECTIVE_FLAGS, make_settings
from tpuserve.errors import InvalidSetting

ROOT = Path(__file__).parents[3]
BASE = {"model_base_path": "/models/half"}


@pytest.mark.parametrize(
    ("base_path", "expected"),
    [
        ("s3://models/half", "s3://models/half"),
        ("https://host/models/half/", "https://host/models/half/"),
        ("file:///models/half", Path("/models/half")),
        (Path("/models/half"), Path("/models/half")),
    ],
)
def test_a_base_path_may_be_a_uri(base_path: Any, expected: Any) -> None:
    assert make_settings({"model_base_path": base_path}).model_base_path == expected


def test_flags_are_parsed_as_on_the_command_line() -> None:
    settings = make_settings(
        {**BASE, "saved_model_tags": "serve, tpu", "file_system_poll_wait_seconds": 60}
        | {"batching_parameters_file": Path("/b.config"), "enable_batching": True, "engine": None}
    )
    assert settings.saved_model_tags == frozenset({"serve", "tpu"})
    assert settings.file_system_poll_wait_seconds == 60
    assert settings.batching_parameters_file == "/b.config"
    assert settings.engine == "tensorflow"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"enable_batching": "true"}, "enable_batching='true'. Give true, false or auto."),
        ({"load_timeout_seconds": "60"}, "load_timeout_seconds='60'. Give a number."),
        ({"num_load_threads": 1.5}, "num_load_threads=1.5. Give a whole number."),
        ({"num_load_threads": True}, "num_load_threads=True. Give a whole number."),
        ({"saved_model_tags": ["serve"]}, r"saved_model_tags=\['serve'\]. Give text."),
        ({"model_nme": "half"}, "flags model_nme, which `tpuserve serve` does not have"),
    ],
)
def test_invalid_flags_are_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make_settings({**BASE, **flags})


def test_each_flag_without_effect_is_refused() -> None:
    for name in sorted(set(FLAGS) - EFFECTIVE_FLAGS):
        with pytest.raises(InvalidSetting, match=f"the flags {name}, which have no effect: Ray"):
            make_settings({**BASE, name: FLAGS[name].default})


def test_the_error_names_all_flags_and_the_options_of_ray() -> None:
    with pytest.raises(InvalidSetting) as refused:
        make_settings({**BASE, "shutdown_grace_seconds": 5, "max_queue": 9, "access_log": True})
    assert str(refused.value) == (
        "the deployment has the flags access_log, max_queue, shutdown_grace_seconds, which have no "
        "effect: Ray receives the requests, and a replica only runs models. Leave them out. In "
        "place of max_queue, give max_queued_requests in `options`. In place of "
        "shutdown_grace_seconds, give graceful_shutdown_timeout_s in `options`."
    )


def test_each_other_flag_is_read_by_a_part_of_the_server_that_a_replica_has() -> None:
    root = ROOT / "server"
    others = ("app.py", "command.py", "frontends", "config/settings.py")
    texts = [
        path.read_text()
        for path in root.rglob("*.py")
        if not str(path.relative_to(root)).startswith(others)
    ]
    read = {name for text in texts for name in re.findall(r"\bsettings\.(\w+)", text)}
    assert sorted(EFFECTIVE_FLAGS - read) == []


@pytest.mark.parametrize("document", ["tpuserve/ray.py", "docs/ray.md"])
def test_the_deployment_in_a_document_has_valid_flags(document: str) -> None:
    text = (ROOT / document).read_text()
    call = re.search(r"tpuserve\.ray\.deployment\((?:[^()]|\([^()]*\))*\)", text)
    assert call
    (expression,) = ast.parse(call[0]).body
    assert isinstance(expression, ast.Expr)
    assert isinstance(expression.value, ast.Call)
    (base_path,) = map(ast.literal_eval, expression.value.args)
    flags = {
        str(keyword.arg): ast.literal_eval(keyword.value) for keyword in expression.value.keywords
    }
    assert flags.pop("options") == {"num_replicas": 2}
    assert make_settings({"model_base_path": base_path, **flags}).model_name == "digits"
