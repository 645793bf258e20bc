import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.tpuserve import saved_models
from tests.tpuserve.saved_models import WORDS
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import metagraph, summary_tables


def summary_text(directory: Path, encoding: str = "utf-8", **console: object) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    settings = {"width": 160, **console}
    screen = Console(file=file, **settings)  # type: ignore[arg-type]
    summary_tables.print_summary(metagraph.read_saved_model(directory), screen)
    file.seek(0)
    return file.read()


def write_graph(graph: pb.GraphDef, directory: Path) -> Path:
    return saved_models.write_saved_model(saved_models.saved_model_with_graph(graph), directory)


def test_both_metagraphs_are_printed_with_the_devices_of_their_ops(tmp_path: Path) -> None:
    text = summary_text(
        saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "1")
    )
    for expected in (
        "metagraph {serve}, TensorFlow 2.21.0",
        "on the TPU   nothing",
        "metagraph {serve, tpu}",
        "float32 [?, 1]",
        "on the TPU   computation: 3 ops: Mul 2, Add 1",
        "  its host   1 op: AsString 1",
        "on the host  2 ops: Placeholder 1, TPUPartitionedCall 1",
    ):
        assert expected in text


def test_tpu_graph_without_the_tag_tpu_is_noted(tmp_path: Path) -> None:
    model = saved_models.half_plus_two()
    model.meta_graphs[0].graph_def.CopyFrom(model.meta_graphs[1].graph_def)
    text = summary_text(saved_models.write_saved_model(model, tmp_path / "1"))
    note = "TPU computations without the tag tpu: a machine without a TPU lowers them to its CPU"
    assert text.count(note) == 1
    graph = pb.GraphDef()
    graph.node.add(name="metadata", op="TPUReplicateMetadata")
    assert "on the TPU   a computation of tpu.rewrite" in summary_text(
        write_graph(graph, tmp_path / "2")
    )


def test_batching_variables_and_files_of_a_real_export_are_printed() -> None:
    text = summary_text(WORDS)
    for expected in (
        ": up to 4 rows, padded to 1, 4; waits 5 ms; 2 at once, 100 in the queue",
        "variables    3, 200 B; model/dense/embedding float32 [4, 8] 128 B, ",
        "assets       vocabulary.txt",
        "warm-up      2 requests: predict serving_default (words string [1, 5]); predict",
        "extra files  tf_serving_warmup_requests",
    ):
        assert expected in text
    assert "problem" not in text


def test_problem_is_printed(tmp_path: Path) -> None:
    directory = saved_models.copy_of_words(tmp_path / "1")
    (directory / "assets" / "vocabulary.txt").unlink()
    assert "problem      assets/vocabulary.txt is missing" in summary_text(directory)


def test_colours_are_printed_to_terminals_alone() -> None:
    assert "\x1b[" in summary_text(WORDS, force_terminal=True, color_system="standard")
    assert "\x1b[" not in summary_text(WORDS)


def test_lines_in_a_pipe_are_not_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    summary_tables.print_summary(metagraph.read_saved_model(WORDS))
    assert "model/dense/bias float32 [2] 8 B" in capsys.readouterr().out


def test_ascii_console_gets_ascii_alone(tmp_path: Path) -> None:
    graph = pb.GraphDef()
    graph.node.add(op="Größe")
    text = summary_text(write_graph(graph, tmp_path / "1"), encoding="ascii")
    assert "on the host  1 op: Gr\\xf6\\xdfe 1" in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("\x1b[2J\nAdd", "\\x1b[2J\\nAdd 1"),
        ("[bold]Add[/]", "[bold]Add[/] 1"),
        (":smile:", ":smile: 1"),
        ("\u202eAdd", "\\u202eAdd 1"),
    ],
)
def test_control_characters_in_a_name_are_escaped(tmp_path: Path, name: str, expected: str) -> None:
    graph = pb.GraphDef()
    graph.node.add(op=name)
    assert f"1 op: {expected}" in summary_text(write_graph(graph, tmp_path / "1"))


def test_directory_of_any_name_is_printed(tmp_path: Path) -> None:
    directory = tmp_path / "[red]\udcff"
    saved_models.copy_of_words(directory)
    assert "[red]\\udcff: graph" in summary_text(directory)


def test_omitted_entries_of_long_lists_are_counted(tmp_path: Path) -> None:
    model = saved_models.saved_model_with_graph(pb.GraphDef())
    for position in range(300):
        model.meta_graphs[0].signature_def[f"s{position:03d}"].inputs["x"].name = "x:0"
    for op in "ABCDEFGH":
        model.meta_graphs[0].graph_def.node.add(op=op)
    model.meta_graphs[0].graph_def.node.add(op="I" * 5000)
    text = summary_text(saved_models.write_saved_model(model, tmp_path / "1"))
    assert "s199" in text
    assert "s200" not in text
    assert "and 100 more" in text
    assert "9 ops: A 1, B 1, C 1, D 1, E 1, F 1 and 3 other types" in text
    assert len(text) < 100_000


def test_variable_of_unknown_size_is_marked(tmp_path: Path) -> None:
    graph = pb.GraphDef()
    for name, size in (("v", 500_000), ("w", -1)):
        node = graph.node.add(name=name, op="VarHandleOp")
        node.attr["dtype"].type = pb.DT_FLOAT
        node.attr["shape"].shape.dim.add(size=size)
    text = summary_text(write_graph(graph, tmp_path / "1"))
    assert "2, 2.0 MB and 1 of unknown size; v float32 [500000] 2.0 MB, w float32 [?] of" in text
