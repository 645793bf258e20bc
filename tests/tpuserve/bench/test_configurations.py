"""`tpuserve analyse` measures the engines of this machine, and sizes and timeouts of batches."""

import importlib.util
from pathlib import Path

import pytest

from server.config import batching_parameters
from tpuserve import tags
from tpuserve.bench import configurations
from tpuserve.bench.analysis import TimeBudget
from tpuserve.bench.configurations import ModelEngine
from tpuserve.bench.windows import Procedure

TENSORFLOW = ModelEngine("tensorflow", {"engine": "tensorflow"}, {}, False)
XLA = ModelEngine("xla", {"engine": "xla"})
HAS_JAX = importlib.util.find_spec("jax") is not None


def test_a_model_for_the_cpu_runs_with_tensorflow_and_where_jax_is_there_with_xla() -> None:
    engines = configurations.find_engines({tags.SERVE})
    assert [engine.flags for engine in engines] == [
        {"engine": name} for name in ("tensorflow", "xla")[: 1 + HAS_JAX]
    ]


def test_a_tpu_metagraph_is_emulated_and_runs_by_pjrt_on_a_machine_without_a_tpu() -> None:
    engines = configurations.find_engines({tags.SERVE, tags.SERVE_TPU})
    on_cpu = [engine for engine in engines if not engine.environment]
    assert all(engine.flags["saved_model_tags"] == "serve" for engine in on_cpu)
    on_tpu = [engine for engine in engines if engine.environment]
    assert all(engine.flags == {"saved_model_tags": "serve,tpu"} for engine in on_tpu)
    assert [engine.environment for engine in on_tpu] == [
        {"TPUSERVE_TPU_RUNTIME": "emulated"},
        {"TPUSERVE_TPU_RUNTIME": "pjrt", "TPUSERVE_PJRT_PLATFORM": "cpu"},
    ][: 1 + HAS_JAX]
    assert configurations.find_engines({tags.SERVE_TPU}) == on_tpu


def test_a_real_tpu_is_measured_instead_of_an_emulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuserve.tpu_hardware.chips.find_device_files", lambda: ["/dev/accel0"])
    (tpu,) = configurations.find_engines({tags.SERVE_TPU})
    assert (tpu.flags, tpu.environment) == ({"saved_model_tags": "serve,tpu"}, {})


def test_the_server_reads_each_size_and_timeout_of_batches(tmp_path: Path) -> None:
    path = tmp_path / "batching.config"
    for engine, sizes in ((TENSORFLOW, ()), (XLA, (2, 4, 8, 16))):
        read = []
        for configuration in configurations.with_timeouts(engine, 2, float("inf")):
            assert configuration.flags["enable_batching"] is True
            path.write_text(configuration.batching_parameters)
            parameters = batching_parameters.read_batching_parameters(path)
            assert parameters.batching_policy == "timeout"
            read.append((parameters.max_batch_size, parameters.batch_timeout_micros))
            if parameters.max_batch_size == 16:
                assert parameters.allowed_batch_sizes == sizes
        assert read == [(16, 0), (16, 1000), (16, 5000), (64, 0), (64, 1000), (64, 5000)]


def test_timeouts_that_alone_exceed_the_goal_are_left_out() -> None:
    names = [c.name for c in configurations.with_timeouts(TENSORFLOW, 1, 2.0)]
    assert [name.rsplit(", ")[-1] for name in names] == ["0 ms", "1 ms"] * 2


def test_windows_are_shortened_to_the_share_of_a_configuration() -> None:
    procedure = Procedure(window_s=2.0, max_windows=10, warm_up_s=5.0)
    budget = TimeBudget(1000.0, 4)
    budget.begin_configuration()
    # A load takes up to 25 seconds: 5 loads take half of the share of 250 seconds, and 20 loads
    # twice the share.
    assert budget.shorten(procedure, 5) == procedure
    shortened = budget.shorten(procedure, 20)
    assert shortened.window_s == pytest.approx(1.0, rel=0.1)
    assert shortened.warm_up_s == pytest.approx(2.5, rel=0.1)
    assert budget.shorten(procedure, 20_000).window_s == pytest.approx(0.2)
    budget.begin_configuration()
    # A third of about 1000 seconds.
    assert budget.shorten(procedure, 20).window_s == pytest.approx(4 / 3, rel=0.1)
    assert not budget.is_over
    assert TimeBudget(0.0, 1).is_over
