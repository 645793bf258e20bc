"""A mistake in flags, files or tags is reported in one line, before TensorFlow is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tpuserve.proto import saved_model_pb2

MODEL = """model_config_list {{
  config {{ name: 'a' base_path: '{0}' model_platform: 'tensorflow' {1} }}
}}"""


@pytest.fixture
def base_path(tmp_path: Path) -> Path:
    """Return a base path whose version 1 has only the metagraph {serve}."""
    message = saved_model_pb2.SavedModel()
    message.meta_graphs.add().meta_info_def.tags.append("serve")
    (tmp_path / "model" / "1").mkdir(parents=True)
    (tmp_path / "model" / "1" / "saved_model.pb").write_bytes(message.SerializeToString())
    return tmp_path / "model"


def start(
    tmp_path: Path, *arguments: str, module: str = "tpuserve", **environment: str
) -> tuple[int, str, str]:
    """Run a server that ends by itself; return its status, standard output and standard error."""
    (tmp_path / "sitecustomize.py").write_text(NOTE_IMPORT)
    rest, rpc = processes.free_ports(2)
    program = ["-m", "tpuserve", "serve"] if module == "tpuserve" else ["-c", STAND_IN]
    result = subprocess.run(
        [sys.executable, *program, f"--rest_api_port={rest}", f"--port={rpc}", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not (tmp_path / "imported").exists(), "TensorFlow was imported"
    return result.returncode, result.stdout, result.stderr


NOTE_IMPORT = """
import sys
def note(event, arguments):
    if event == "import" and arguments[0] == "tensorflow":
        open("imported", "w")
sys.addaudithook(note)
"""
STAND_IN = "from server.command import main; main()"


@pytest.mark.parametrize(
    ("flag", "text", "place"),
    [
        (
            "model_config_file",
            "model_config_list {\n config { nam: 'a' } }",
            "line 2, column 11, field model_config_list.config.nam: Error parsing text-format "
            "tensorflow.serving.ModelServerConfig: ",
        ),
        (
            "monitoring_config_file",
            "prometheus_config { enabled: true }",
            "line 1, column 21, field prometheus_config.enabled: ",
        ),
        (
            "ssl_config_file",
            "server_key: 'a'\nverify: true",
            "line 2, column 1, field verify: ",
        ),
        (
            "platform_config_file",
            "platform_configs {\n key: 3 }",
            "line 2, column 7, field platform_configs.key: ",
        ),
        (
            "batching_parameters_file",
            "max_batch_size { value: many }",
            "line 1, column 25, field max_batch_size.value: ",
        ),
        (
            "tensorflow_session_config_file",
            "gpu_options {\n allow_grow: true }",
            "line 2, column 2, field gpu_options.allow_grow: ",
        ),
    ],
)
def test_malformed_file_is_told_with_line_column_and_field(
    tmp_path: Path, base_path: Path, flag: str, text: str, place: str
) -> None:
    file = tmp_path / "file.config"
    file.write_text(text)
    arguments = [f"--{flag}={file}"]
    if flag != "model_config_file":
        arguments.append(f"--model_base_path={base_path}")
    if flag == "batching_parameters_file":
        arguments.append("--enable_batching")
    status, _, errors = start(tmp_path, *arguments)
    assert status == 1
    assert errors.startswith(f"Error: Invalid protobuf file: '{file}': {place}")
    assert errors.count("\n") == 1


def test_unknown_engine_is_refused(tmp_path: Path, base_path: Path) -> None:
    status, _, errors = start(tmp_path, "--engine=gpu", f"--model_base_path={base_path}")
    assert (status, errors) == (1, "Error: --engine is 'gpu'. Give tensorflow or xla.\n")


def test_version_of_jax_that_was_not_tested_is_refused_for_the_engine_xla(
    tmp_path: Path, base_path: Path
) -> None:
    # The first directory on PYTHONPATH decides which version of jax is found.
    information = tmp_path / "jax-0.11.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: jax\nVersion: 0.11.0\n")
    status, _, errors = start(tmp_path, "--engine=xla", f"--model_base_path={base_path}")
    assert status == 1
    assert errors == (
        "Error: running on PJRT devices was tested with jax from 0.9 to below 0.11; found 0.11.0. "
        "Install one of these versions.\n"
    )


def test_malformed_file_is_told_as_scripts_of_the_original_know_it(tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text("nonsense {")
    status, printed, errors = start(tmp_path, f"--model_config_file={file}", module="server")
    assert status == 255
    assert printed.startswith(
        f"Failed to start server. Error: INVALID_ARGUMENT: Invalid protobuf file: '{file}': line 1"
    )
    assert "Error parsing text-format tensorflow.serving.ModelServerConfig" in errors
    assert (printed.count("\n"), errors.count("\n")) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--saved_model_tags=serve,gpu"], "no metagraph tagged {gpu, serve} (asked for) in"),
        (["--fail_if_no_model_versions_found", "--model_base_path=absent"], "Unable to find a"),
        (
            ["--max_request_bytes=-1"],
            "--max_request_bytes is -1. Give a number that is at least 0.",
        ),
        (["--api_keys_file=absent"], "absent"),
        (["--model_config_file=absent"], "cannot read absent: No such file or directory."),
    ],
)
def test_wrong_flag_is_told(
    tmp_path: Path, base_path: Path, arguments: list[str], text: str
) -> None:
    status, _, errors = start(tmp_path, f"--model_base_path={base_path}", *arguments)
    assert status == 1
    assert errors.startswith("Error: ")
    assert text in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("version_labels { key: 'stable' value: 1 }", "Request to assign label to version 1"),
        (
            "logging_config { sampling_config { sampling_rate: 7 } }",
            "logging_config of model a: sampling_rate is 7",
        ),
        ("model_version_policy { specific { versions: 1 } }", "is not a SavedModel, or is damaged"),
    ],
)
def test_model_that_cannot_be_served_is_told(
    tmp_path: Path, base_path: Path, field: str, text: str
) -> None:
    if "policy" in field:
        (base_path / "1" / "saved_model.pb").write_text("damaged")
    file = tmp_path / "models.config"
    file.write_text(MODEL.format(base_path, field))
    status, _, errors = start(tmp_path, f"--model_config_file={file}")
    assert status == 1
    assert text in errors
    assert errors.count("\n") == 1


def test_wrong_topology_is_told(tmp_path: Path, base_path: Path) -> None:
    status, _, errors = start(
        tmp_path, f"--model_base_path={base_path}", TPUSERVE_EMULATED_TPU="2y4"
    )
    assert status == 1
    assert errors.startswith("Error: TPUSERVE_EMULATED_TPU='2y4' is not a valid TPU topology.")


def test_path_without_a_model_is_told_with_the_command_that_would_do(
    tmp_path: Path, base_path: Path
) -> None:
    status, _, errors = start(tmp_path, str(tmp_path))
    assert (status, errors) == (
        1,
        f"Error: no version of a model in {tmp_path}. Run: tpuserve serve {base_path}\n",
    )


def test_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.keras").touch()
    (tmp_path / "file").touch()
    status, _, errors = start(tmp_path, "m.keras", f"--model_cache_dir={tmp_path}/file")
    assert (status, errors) == (
        1,
        f"Error: the model cache {tmp_path}/file cannot be written: File exists. Set "
        f"--model_cache_dir to a directory that the server may write to.\n",
    )
