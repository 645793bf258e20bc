from pathlib import Path

import pytest
from google.protobuf import text_format

from tests.tpuserve import saved_models
from tpuserve import metagraph, tags
from tpuserve.errors import DamagedSavedModel, SavedModelNotFound
from tpuserve.signature import TensorSpec


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return saved_models.write(saved_models.half_plus_two(), tmp_path / "half" / "1")


def test_every_metagraph_is_read_with_its_tags_and_signatures(directory: Path) -> None:
    found = metagraph.read(directory)
    assert [each.tags for each in found.metagraphs] == [tags.SERVE, tags.SERVE_TPU]
    signature = found.metagraphs[0].signatures["serving_default"]
    assert signature.inputs == {"x": TensorSpec("x:0", "float32", (None, 1))}
    assert found.variables_bytes == 5


def test_ops_are_counted_where_they_run(directory: Path) -> None:
    cpu, tpu = metagraph.read(directory).metagraphs
    assert cpu.host_ops == {"Placeholder": 1, "Mul": 1, "Add": 1}
    assert cpu.computations == ()
    assert tpu.host_ops == {"Placeholder": 1, "TPUPartitionedCall": 1}
    (computation,) = tpu.computations
    assert computation.tpu_ops == {"Mul": 2, "Add": 1}
    assert computation.host_ops == {"AsString": 1}


def test_a_text_file_is_read_as_well(tmp_path: Path) -> None:
    text = text_format.MessageToString(saved_models.half_plus_two())
    (tmp_path / "saved_model.pbtxt").write_text(text)
    assert len(metagraph.read(tmp_path).metagraphs) == 2


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(SavedModelNotFound, match="no directory .*/gone"):
        metagraph.read(tmp_path / "gone")


def test_a_model_directory_leads_to_its_versions(directory: Path) -> None:
    with pytest.raises(SavedModelNotFound, match=f"found version directories 1.*{directory}"):
        metagraph.read(directory.parent)


@pytest.mark.parametrize("content", [b"", b"no protobuf", b"\x12\xff\xff"])
def test_a_damaged_file_is_an_error_of_its_own(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(DamagedSavedModel, match="saved_model.pb"):
        metagraph.read(tmp_path)


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    # As root, which may be who runs the tests, every file can be read.
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DamagedSavedModel, match=r"saved_model.pb cannot be read: Permission"):
        metagraph.read(directory)


def test_a_file_leads_to_its_directory(directory: Path) -> None:
    with pytest.raises(SavedModelNotFound, match=f"is a file. Name the directory .* {directory}"):
        metagraph.read(directory / "saved_model.pb")
