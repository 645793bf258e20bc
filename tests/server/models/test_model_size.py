"""The memory of a model is estimated from its files and the nodes of its graph."""

from pathlib import Path

from server.models.model_size import estimate_bytes
from tpuserve.proto import saved_model_pb2 as pb


def save_graph(directory: Path, *nodes: int) -> int:
    """Write a saved_model.pb of a metagraph for each number of nodes; return its bytes."""
    saved = pb.SavedModel()
    for count in nodes:
        graph = saved.meta_graphs.add().graph_def
        for number in range(count):
            graph.node.add(name=f"n{number}", op="NoOp")
    directory.mkdir()
    return (directory / "saved_model.pb").write_bytes(saved.SerializeToString())


def test_files_count_with_their_bytes_and_nodes_with_8_kb(tmp_path: Path) -> None:
    graph_bytes = save_graph(tmp_path / "1", 10)
    (tmp_path / "1" / "variables").mkdir()
    (tmp_path / "1" / "variables" / "variables.data-00000-of-00001").write_bytes(bytes(1000))
    assert estimate_bytes(tmp_path / "1") == 500_000 + 10 * 8_000 + graph_bytes + 1000


def test_only_the_larger_metagraph_counts(tmp_path: Path) -> None:
    graph_bytes = save_graph(tmp_path / "1", 3, 5)
    assert estimate_bytes(tmp_path / "1") == 500_000 + 5 * 8_000 + graph_bytes


def test_version_that_is_not_here_yet_has_no_bytes(tmp_path: Path) -> None:
    assert estimate_bytes(tmp_path / "1") == 0


def test_damaged_graph_counts_with_its_bytes_alone(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 7)
    assert estimate_bytes(tmp_path) == 500_000 + 7


def test_model_without_a_metagraph_counts_with_its_bytes_alone(tmp_path: Path) -> None:
    graph_bytes = save_graph(tmp_path / "1")
    assert estimate_bytes(tmp_path / "1") == 500_000 + graph_bytes
