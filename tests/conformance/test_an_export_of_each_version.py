"""An export of each version is inspected, verified and served by the commands of a user.

`exports` has all kinds of exports, with all models; these three run with `make test`.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests import processes
from tests.conformance.exports import kinds, models
from tests.conformance.exports.kinds import ExportedModel
from tests.conformance.exports.model import train
from tests.processes import ServeProcess
from tpuserve import cli, tags
from tpuserve.client import Client
from tpuserve.client.address import ApiName
from tpuserve.runtime import loader

_EXPORTS = {
    "V1": models.TEXT,
    "V2 with BatchConfig": models.TEXT,
    "Keras": models.RESIDUAL,
}


@pytest.fixture(scope="module", params=_EXPORTS)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ExportedModel:
    model = _EXPORTS[request.param]
    (kind,) = (kind for kind in kinds.ALL if kind.name == request.param)
    model_dir: Path = tmp_path_factory.mktemp("model")
    if request.param != "Keras":
        train(model, model_dir)
    return kind.models[model.name](model_dir, tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def server(exported: ExportedModel) -> Iterator[ServeProcess]:
    """A server of the TPU metagraph, on an emulated TPU."""
    with processes.serving(exported.directory.parent, tags.SERVE_TPU) as server:
        yield server


def test_it_is_inspected(exported: ExportedModel) -> None:
    result = CliRunner().invoke(cli.cli, ["inspect", str(exported.directory)])
    assert result.exit_code == 0
    for tag_set in ("{serve}", "{serve, tpu}"):
        assert tag_set in result.stdout


def test_it_is_verified(exported: ExportedModel) -> None:
    result = CliRunner().invoke(cli.cli, ["verify", str(exported.directory)])
    assert result.exit_code == 0, result.output
    assert "serving_default" in result.stdout


@pytest.mark.parametrize(
    ("scheme", "api"), [("http", "v1"), ("grpc", "v1"), ("http", "v2"), ("grpc", "v2")]
)
def test_the_tpu_metagraph_is_served_with_the_answers_of_the_cpu(
    exported: ExportedModel, server: ServeProcess, scheme: str, api: ApiName
) -> None:
    inputs = exported.requests["serving_default"]
    model = loader.load(exported.directory, tags.SERVE)
    try:
        expected = model.run("serving_default", inputs)
    finally:
        model.close()
    address = server.rest if scheme == "http" else server.rpc
    with Client(f"{scheme}://{address}", api=api) as client:
        outputs = client.predict("half", inputs)
    assert outputs.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-5)
