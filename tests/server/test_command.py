"""The command line says what there is and refuses what cannot be."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from server.command import serve
from tpuserve.errors import InvalidSetting


def test_help_tells_every_flag() -> None:
    text = CliRunner().invoke(serve, ["--help"]).output
    for option in serve.params:
        assert option.opts[0] in text
        assert getattr(option, "help", None)


def test_rest_default_is_told_to_differ_from_tensorflow_serving() -> None:
    assert "0 turns it off, which is TensorFlow Serving's default" in " ".join(
        CliRunner().invoke(serve, ["--help"]).output.split()
    )


@pytest.mark.parametrize(
    "arguments",
    [["--model_base_path=models/half"], ["--model_base_path", "models/half"], []],
)
def test_both_forms_of_a_flag_are_read(arguments: list[str]) -> None:
    error = CliRunner().invoke(serve, arguments).exception
    assert isinstance(error, InvalidSetting)
    assert "no absolute path" in str(error)


@pytest.mark.slow
def test_tensorflow_stays_out_until_a_model_is_loaded() -> None:
    code = (
        "import sys, server.app, server.command, server.rest.app, server.rest.server;"
        "sys.exit('tensorflow' in sys.modules or 'grpc' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_command_is_imported_without_a_web_framework() -> None:
    code = (
        "import sys, server.command; sys.exit('fastapi' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
