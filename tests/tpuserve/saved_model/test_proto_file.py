import os
from pathlib import Path

import pytest

from tests.tpuserve import saved_models
from tpuserve.errors import DamagedSavedModel, NotFound
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import proto_file
from tpuserve.saved_model.proto_file import find_saved_model_file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "half" / "1")


def parse_file(directory: Path) -> pb.SavedModel:
    return proto_file.parse_saved_model_file(find_saved_model_file(directory))


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no directory .*/gone"):
        find_saved_model_file(tmp_path / "gone")


def test_error_for_a_base_path_suggests_the_newest_version(directory: Path) -> None:
    saved_models.write_saved_model(saved_models.half_plus_two(), directory.parent / "10")
    saved_models.write_saved_model(saved_models.half_plus_two(), directory.parent / "9")
    with pytest.raises(NotFound, match=r"found version directories 1, 9, 10.*/half/10$"):
        find_saved_model_file(directory.parent)


def test_error_for_a_file_suggests_its_directory(directory: Path) -> None:
    with pytest.raises(NotFound, match=f"is a file. Name the directory .* {directory}"):
        find_saved_model_file(directory / "saved_model.pb")


def test_directory_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").mkdir()
    with pytest.raises(NotFound, match="saved_model.pb is a directory"):
        find_saved_model_file(tmp_path)


def test_empty_directory_is_reported_to_have_no_saved_model(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no saved_model.pb in .*export_saved_model"):
        find_saved_model_file(tmp_path)


def test_path_that_is_too_long_is_a_damaged_saved_model() -> None:
    with pytest.raises(DamagedSavedModel, match="File name too long"):
        find_saved_model_file(Path("x" * 5000))


@pytest.mark.parametrize(
    "content", [b"", b"no protobuf", b"\x12\xff\xff", b"\x12\x02\x0a\x00" + b"\x12"]
)
def test_damaged_file_is_a_damaged_saved_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(DamagedSavedModel, match="saved_model.pb"):
        parse_file(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"meta_graphs {", b"meta_graphs: 3", b"\xff\xfe", b"unknown {" * 3000],
    ids=["open", "wrong", "binary", "deep"],
)
def test_damaged_text_file_is_a_damaged_saved_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "saved_model.pbtxt").write_bytes(content)
    with pytest.raises(DamagedSavedModel, match="saved_model.pbtxt is not a SavedModel"):
        parse_file(tmp_path)


def test_unreadable_file_is_a_damaged_saved_model(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    # Replace read_bytes: the tests may run as root, who can read every file.
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DamagedSavedModel, match=r"saved_model.pb cannot be read: Permission"):
        parse_file(directory)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_unreadable_directory_is_a_damaged_saved_model(directory: Path) -> None:
    directory.chmod(0)
    try:
        with pytest.raises(DamagedSavedModel, match="cannot be read: Permission denied"):
            find_saved_model_file(directory)
    finally:
        directory.chmod(0o700)


def test_assets_are_read_from_the_field_and_from_the_collection() -> None:
    metagraph = pb.MetaGraphDef()
    collected = metagraph.collection_def["saved_model_assets"].any_list.value
    collected.add(value=pb.AssetFileDef(filename="a.txt").SerializeToString())
    collected.add(value=pb.AssetFileDef(filename="a.txt").SerializeToString())
    assert proto_file.asset_names(metagraph) == ("a.txt",)
    metagraph.asset_file_def.add(filename="b.txt")
    assert proto_file.asset_names(metagraph) == ("b.txt",)


def test_error_for_a_damaged_asset_names_the_metagraph() -> None:
    metagraph = pb.MetaGraphDef()
    metagraph.meta_info_def.tags.append("serve")
    metagraph.collection_def["saved_model_assets"].any_list.value.add(value=b"\x12\xff")
    with pytest.raises(DamagedSavedModel, match=r"an asset of the metagraph \{serve\}"):
        proto_file.asset_names(metagraph)


def test_types_in_text_format_have_names(directory: Path) -> None:
    (directory / "saved_model.pb").unlink()
    (directory / "saved_model.pbtxt").write_text(
        """
        meta_graphs {
          graph_def {
            node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_INT64 } } }
          }
        }
        """
    )
    (node,) = parse_file(directory).meta_graphs[0].graph_def.node
    assert node.attr["dtype"].type == pb.DT_INT64


def test_error_for_a_device_file_says_that_it_is_no_directory() -> None:
    with pytest.raises(NotFound, match="^/dev/null is no directory. Name a directory"):
        find_saved_model_file(Path("/dev/null"))


def test_error_for_the_current_directory_names_it_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=r"no saved_model.pb in the current directory\. N"):
        find_saved_model_file(Path())
