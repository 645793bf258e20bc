"""One server logs, batches, counts and warms up as its configuration files say."""

import shutil
from pathlib import Path

import httpx
import pytest

from server.app import Server
from server.config.settings import Settings
from tests import processes
from tests.server.fakes import FakeLoader
from tpuserve.saved_model import warm_up_file

LOOPBACK = processes.LOOPBACK
CONFIG = """
model_config_list {{
  config {{
    name: "half", base_path: "{base_path}", model_platform: "tensorflow"
    logging_config {{
      log_collector_config {{ type: "file" filename_prefix: "{prefix}" }}
      sampling_config {{ sampling_rate: 1.0 }}
    }}
  }}
}}
"""
BATCHING = "allowed_batch_sizes: 4, max_batch_size { value: 4 }, num_batch_threads { value: 1 }"
MONITORING = 'prometheus_config { enable: true, path: "/metrics" }'


def write_file(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def serve(base_path: Path, directory: Path, loader: FakeLoader) -> tuple[Server, str]:
    (port,) = processes.free_ports(1)
    config = CONFIG.format(base_path=base_path, prefix=directory / "logs" / "half")
    settings = Settings(
        base_path,
        port=0,
        rest_api_port=port,
        host=LOOPBACK,
        model_config_file=write_file(directory / "models", config),
        enable_batching=True,
        batching_parameters_file=write_file(directory / "batching", BATCHING),
        monitoring_config_file=write_file(directory / "monitoring", MONITORING),
    )
    server = Server(settings, loader, on_failure=pytest.fail)
    server.start()
    return server, f"http://{LOOPBACK}:{port}"


def test_what_one_run_logs_warms_up_the_next(tmp_path: Path) -> None:
    base_path = tmp_path / "half"
    (base_path / "3").mkdir(parents=True)
    server, url = serve(base_path, tmp_path, FakeLoader())
    predict = url + "/v1/models/half:predict"
    assert httpx.post(predict, json={"instances": [1.0, 2.0, 5.0]}).json() == {
        "predictions": [2.5, 3.0, 4.5]
    }
    too_many = httpx.post(predict, json={"instances": [1.0] * 5})
    assert (too_many.status_code, too_many.json()) == (
        400,
        {"error": "Task size 5 is larger than maximum input batch size 4"},
    )
    metrics = httpx.get(url + "/metrics").text.splitlines()
    for line in (
        ':tensorflow:serving:request_count{model_name="half",status="OK"} 1',
        ':tensorflow:serving:request_count{model_name="half",status="INVALID_ARGUMENT"} 1',
        ':tensorflow:serving:batching_session:padding_size_sum{execution_batch_size="4"} 1',
    ):
        assert line in metrics
    assert server.stop()

    (log,) = (tmp_path / "logs").iterdir()
    assert len(list(warm_up_file.read_warm_up_records(log))) == 1
    (base_path / "4" / warm_up_file.PATH).parent.mkdir(parents=True)
    shutil.copy(log, base_path / "4" / warm_up_file.PATH)
    loader = FakeLoader()
    server, url = serve(base_path, tmp_path, loader)
    assert loader.models[4].has_begun.is_set()
    metrics = httpx.get(url + "/metrics").text.splitlines()
    name = ":tensorflow:serving:model_warmup_records_read"
    assert f'{name}{{model_path="{base_path / "4"}",status="OK"}} 1' in metrics
    assert server.stop()
