"""The inputs of an analysis are those that the graph on disk accepts."""

from pathlib import Path

import numpy as np
import pytest

from tests import models
from tests.tpuserve.bench.test_inputs import write_log
from tpuserve import tags
from tpuserve.bench import analysis, model_files
from tpuserve.bench.benchmark import InputChoice
from tpuserve.errors import DamagedSavedModel, InvalidInput, SignatureNotFound


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base: Path = tmp_path_factory.mktemp("half")
    models.export(models.half_plus_two, base).rename(base / "9")
    (base / "010").symlink_to(base / "9")
    (base / "notes").mkdir()
    return base


def test_the_newest_version_is_read_with_the_tags_of_its_metagraphs(base: Path) -> None:
    model = model_files.read_model(base, "")
    assert model.directory == base / "010"
    assert model.tag_sets == {tags.SERVE, tags.SERVE_TPU}
    assert frozenset(model.meta_graph_def.meta_info_def.tags) == tags.SERVE
    assert model_files.read_model(base / "9", "").directory == base / "9"


def test_requests_differ_and_have_the_rows_or_shapes_that_were_asked_for(base: Path) -> None:
    model, chosen = analysis.read_model_and_requests(base, "", InputChoice(batch_size=3))
    requests = chosen.inputs
    assert {request.inputs["x"].shape for request in requests} == {(3, 1)}
    assert len({float(request.inputs["x"][0, 0]) for request in requests}) == len(requests) > 1
    (first, *_) = model_files.generate_requests(model, 3, {"x": (5, 1)})
    assert first.inputs["x"].shape == (5, 1)
    with pytest.raises(InvalidInput, match="input 'z'; the signature has x. Name one"):
        model_files.generate_requests(model, 3, {"z": (1,)})


def test_requests_of_a_file_get_the_dtypes_of_the_signature(base: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": [[1], [2]]}')
    choice = InputChoice(file=tmp_path / "a.json")
    _, requests = analysis.read_model_and_requests(base, "", choice)
    assert requests.inputs[0].inputs["x"].dtype == np.float32


def test_a_request_log_chooses_the_signature(base: Path, tmp_path: Path) -> None:
    # The log has requests to the signature "sign".
    write_log(tmp_path / "log", base.name)
    choice = InputChoice(request_log=tmp_path / "log")
    with pytest.raises(SignatureNotFound, match="no signature 'sign'"):
        analysis.read_model_and_requests(base, "", choice)
    model, requests = analysis.read_model_and_requests(base, "serving_default", choice)
    assert model.signature_name == "serving_default"
    assert len(requests.inputs) == 1


def test_mistakes_are_errors_that_say_what_to_do(base: Path, tmp_path: Path) -> None:
    with pytest.raises(SignatureNotFound, match="no signature 'other' in .*; found serving_def"):
        model_files.read_model(base, "other")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"no model")
    with pytest.raises(DamagedSavedModel, match="Export the model again"):
        model_files.read_model(tmp_path, "")
