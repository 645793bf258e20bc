"""A TPU graph that is saved under {serve} too is inspected, verified, and run on each device."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.export import SavedModelWriter
from tpuserve.runtime import loader
from tpuserve.saved_model import metagraph
from tpuserve.verification import verify

SYSTEMS = {
    "no TPU": TpuSystem(),
    "emulated": TpuSystem(1, 1, is_emulated=True),
    "PJRT": TpuSystem(1, 1, pjrt_platform="cpu"),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write one TPU graph under {serve, tpu} and {serve}, as object detection exporters do."""
    graph = models.metagraph(models.half_plus_two, tags.SERVE_TPU)
    with SavedModelWriter(str(tmp_path_factory.mktemp("detector"))) as writer:
        writer.add(graph)
        writer.add(dataclasses.replace(graph, tags=tags.SERVE))
    return Path(writer.directory)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("runtime", [None, "xla"])
def test_serve_runs_with_and_without_a_tpu(
    directory: Path, system: str, runtime: str | None
) -> None:
    if system == "PJRT":
        pytest.importorskip("jax")
    model = loader.load(directory, tags.SERVE, SYSTEMS[system], runtime=runtime)
    try:
        outputs = model.run("serving_default", {"x": np.array([[1], [5]], np.float32)})
    finally:
        model.close()
    assert outputs["y"].tolist() == [[2.5], [4.5]]


def test_inspect_finds_the_computation_in_both(directory: Path) -> None:
    described = metagraph.read_metagraphs(directory)
    assert [metagraph.has_tpu_computation for metagraph in described] == [True, True]


def test_verify_compares_op_by_op_with_xla(directory: Path) -> None:
    report = verify(directory, runs=0)
    assert report.passed
    assert report.largest_absolute == 0
    assert any("{serve} has TPU computations" in note for note in report.notes)
