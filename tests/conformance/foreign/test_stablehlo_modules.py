"""Models of jax2tf are inspected, verified, compiled for a TPU, and run by every runtime."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax.experimental.jax2tf")

from tests.conformance.foreign import jax_models
from tpuserve import tags
from tpuserve.compilation import aot
from tpuserve.compilation.compile_report import Compilation
from tpuserve.devices import TpuSystem
from tpuserve.errors import UnsupportedModel
from tpuserve.runtime import loader
from tpuserve.saved_model import metagraph
from tpuserve.verification import verify

NO_TPU = TpuSystem()
EMULATED = TpuSystem(1, 1, is_emulated=True)
PJRT = TpuSystem(1, 1, pjrt_platform="cpu")
# For an input of ones, the outputs are the sums of the columns of the weights.
INPUTS = {"x": np.ones([2, 3], np.float32)}
OUTPUTS = [[9.0, 12.0], [9.0, 12.0]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jax_models.export_function(tmp_path_factory.mktemp("both"), ["cpu", "tpu"])


@pytest.fixture(scope="module")
def tpu_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jax_models.export_function(tmp_path_factory.mktemp("tpu"), ["tpu"])


@pytest.fixture(scope="module")
def cpu_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jax_models.export_function(tmp_path_factory.mktemp("cpu"), ["cpu"])


@pytest.mark.slow
def test_inspect_names_platforms_and_version(both: Path, tpu_alone: Path) -> None:
    for directory, platforms in ((both, ("CPU", "TPU")), (tpu_alone, ("TPU",))):
        on_cpu, on_tpu = metagraph.read_metagraphs(directory)
        for described, is_on_tpu in ((on_cpu, False), (on_tpu, True)):
            (module,) = described.stablehlo_modules
            assert (module.platforms, module.is_on_tpu) == (platforms, is_on_tpu)
            assert module.version.startswith("StableHLO_v")


@pytest.mark.parametrize(
    ("hardware", "runtime"),
    [(NO_TPU, None), (NO_TPU, "xla"), (EMULATED, None), (PJRT, None)],
    ids=["session", "xla", "emulated", "pjrt"],
)
def test_every_engine_runs_the_module(both: Path, hardware: TpuSystem, runtime: str | None) -> None:
    model = loader.load(both, None, hardware, runtime=runtime)
    try:
        assert model.choice.fallback == ""
        assert model.run("serving_default", INPUTS)["y"].tolist() == OUTPUTS
    finally:
        model.close()


def test_verify_passes(both: Path) -> None:
    report = verify(both, runs=0)
    assert report.passed
    assert report.largest_absolute == 0


def test_module_for_a_tpu_alone_is_refused_on_a_cpu_by_name(tpu_alone: Path) -> None:
    for tag_set, hardware in ((tags.SERVE, NO_TPU), (tags.SERVE_TPU, EMULATED)):
        with pytest.raises(UnsupportedModel, match="is for TPU alone, and not for CPU. Convert it"):
            loader.load(tpu_alone, tag_set, hardware)


def test_module_for_a_cpu_alone_is_an_error_of_verify(cpu_alone: Path) -> None:
    report = verify(cpu_alone, batch_sizes=[1], runs=0)
    assert not report.passed
    hazard = report.hazards[0]
    assert (hazard.kind, hazard.severity, hazard.op) == ("platform", "error", "XlaCallModule")
    assert "is for CPU alone, and not for TPU" in hazard.message


def compile_one(directory: Path) -> Compilation:
    (compilation,) = aot.compile(
        directory, topologies=["v5e:1x1"], batch_sizes=[8], processes=1
    ).compilations
    return compilation


@pytest.mark.slow
def test_compile_takes_the_code_for_a_tpu(both: Path, tpu_alone: Path) -> None:
    for directory in (both, tpu_alone):
        stats = compile_one(directory).stats
        assert stats is not None
        # The product takes a multiplication and an addition for each of 8 rows, 3 inputs and 2
        # outputs. The code for a TPU adds 100 to each output.
        assert stats.flops == pytest.approx(8 * 3 * 2 * 2 + 8 * 2, rel=0.05)


@pytest.mark.slow
def test_compile_refuses_a_module_for_a_cpu_alone(cpu_alone: Path) -> None:
    error = compile_one(cpu_alone).error
    assert error is not None
    assert "is for CPU alone, and not for TPU" in error
