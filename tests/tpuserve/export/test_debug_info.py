import os
import sysconfig
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests import models
from tpuserve import tags
from tpuserve.export import debug_info, on_tpu

v1 = tf.compat.v1

HERE = os.path.relpath(__file__)


def line_with(text: str) -> str:
    """Return "file:number" of the only line in this file that ends with `text`."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if line.endswith(text))
    return f"{HERE}:{number}"


def computation(x: Any) -> dict[str, Any]:
    y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.sin(x), lambda: tf.cos(x))  # branches
    return {"y": tf.keras.activations.softmax(y)}  # in a library


def lines_of(tmp_path: Path) -> Any:
    directory = models.export(computation, tmp_path)
    return directory, debug_info.load_line_lookup(directory)


def test_the_innermost_line_of_user_code_is_recorded(tmp_path: Path) -> None:
    _, line_of = lines_of(tmp_path)
    assert line_of("Sum") == line_with("# branches")
    assert line_of("Softmax") == line_with("# in a library")


def test_installed_command_is_no_user_code(tmp_path: Path) -> None:
    command = Path(sysconfig.get_path("scripts"), "tpuserve")
    script = compile("y = tf.sin(x)", command, "exec")

    def run_command(x: Any) -> dict[str, Any]:
        names = {"tf": tf, "x": x}
        exec(script, names)  # calls the command
        return {"y": names["y"]}

    directory = models.export(run_command, tmp_path)
    assert debug_info.load_line_lookup(directory)("Sin") == line_with("# calls the command")


def test_nodes_of_branches_and_loops_have_lines(tmp_path: Path) -> None:
    _, line_of = lines_of(tmp_path)
    assert line_of("Sin") == line_of("Cos") == line_with("# branches")


def test_nodes_on_the_host_and_unknown_ones_have_no_line(tmp_path: Path) -> None:
    directory, line_of = lines_of(tmp_path)
    assert line_of("x") is None
    assert line_of("no such node") is None
    cpu = models.export(computation, tmp_path / "cpu", tags.SERVE)
    assert not (cpu / "debug").exists()
    assert debug_info.load_line_lookup(cpu)("Sum") is None
    (directory / debug_info.FILE).write_bytes(b"\xff\xff")
    assert debug_info.load_line_lookup(directory)("Sum") is None


def test_nodes_of_the_same_name_are_distinguished_by_function() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [])
        on_tpu(lambda x: tf.sin(x), x)  # first
        on_tpu(lambda x: tf.sin(x), x)  # second
    locations = debug_info.find_source_lines(graph)
    sines = [(name, location) for name, location in locations.items() if name.startswith("Sin")]
    (plain, first), (marked, second) = sines
    assert plain == "Sin"
    assert marked.startswith("Sin@__inference_tpu_computation_")
    assert [f"{location.file}:{location.number}" for location in (first, second)] == [
        line_with("# first"),
        line_with("# second"),
    ]


def test_the_file_is_small_and_tensorflows_own(tmp_path: Path) -> None:
    from tensorflow.core.framework.graph_debug_info_pb2 import GraphDebugInfo

    directory, _ = lines_of(tmp_path)
    content = (directory / debug_info.FILE).read_bytes()
    proto = GraphDebugInfo.FromString(content)
    assert list(proto.files) == [HERE]
    # There is a frame for each of the two lines, and one for the lambdas, which are functions of
    # their own, in one of the lines.
    assert len(proto.frames_by_id) == 3
    # The file has a name and a trace ID for each node, and some bytes for each line.
    names = sum(map(len, proto.name_to_trace_id))
    assert len(content) < names + 15 * len(proto.name_to_trace_id) + 200
    assert len(content) < (directory / "saved_model.pb").stat().st_size / 10
