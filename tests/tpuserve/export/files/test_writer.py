import dataclasses
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import ExportError, InvalidSetting
from tpuserve.export import MetagraphSpec, SavedModelWriter
from tpuserve.runtime import loader
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def write_metagraphs(base: Path, *metagraphs: MetagraphSpec) -> None:
    with SavedModelWriter(str(base)) as writer:
        for metagraph in metagraphs:
            writer.add(metagraph)


def big(x: tf.Tensor) -> dict[str, tf.Tensor]:
    weights = v1.get_variable("weights", [1, 100_000], use_resource=True)
    return {"y": tf.matmul(x, weights)}


def test_two_metagraphs_share_one_set_of_variables(tmp_path: Path) -> None:
    both = models.export(big, tmp_path / "both")
    cpu_only = models.export(big, tmp_path / "cpu", tags.SERVE)
    graphs = metagraph.read_saved_model(both).graph_bytes
    assert size(both) <= 1.05 * size(cpu_only) + graphs


@pytest.mark.parametrize("tag_set", [tags.SERVE, tags.SERVE_TPU], ids=tags.format_tags)
def test_tensorflows_loader_loads_either_metagraph(tmp_path: Path, tag_set: tags.TagSet) -> None:
    directory = models.export(models.half_plus_two, tmp_path)
    # Place only the ops that run: without this option, TensorFlow requires a kernel for every op of
    # the graph, and TPU ops have none here.
    config = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        v1.saved_model.loader.load(session, sorted(tag_set), str(directory))
        half = next(variable for variable in v1.global_variables() if variable.name == "half:0")
        assert session.run(half) == 0.5


def test_a_failed_export_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(session: tf.compat.v1.Session) -> None:
        raise RuntimeError("no such checkpoint")

    broken = dataclasses.replace(models.metagraph(models.half_plus_two), restore=fail)
    with pytest.raises(RuntimeError, match="no such checkpoint"):
        write_metagraphs(tmp_path, broken)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_visible_before_all_is_written(tmp_path: Path) -> None:
    with SavedModelWriter(str(tmp_path)) as writer:
        writer.add(models.metagraph(models.half_plus_two))
        assert not [path for path in tmp_path.iterdir() if path.name.isdigit()]
    assert [path.name for path in tmp_path.iterdir()] == [Path(writer.directory).name]


def test_two_exports_in_one_second_get_two_versions(tmp_path: Path) -> None:
    for _ in range(2):
        with SavedModelWriter(str(tmp_path), clock=lambda: 1000.7) as writer:
            writer.add(models.metagraph(models.half_plus_two))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1000", "1001"]


def test_an_export_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no metagraph was written"):
        write_metagraphs(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_tag_set_cannot_be_written_twice(tmp_path: Path) -> None:
    twice = [models.metagraph(models.half_plus_two)] * 2
    with pytest.raises(ExportError, match="tagged \\['serve'\\]"):
        write_metagraphs(tmp_path, *twice)


def test_extra_assets_are_copied(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("hello")
    extra = {"docs/readme.txt": str(note)}
    with SavedModelWriter(str(tmp_path / "m"), assets_extra=extra, as_text=True) as writer:
        writer.add(models.metagraph(models.half_plus_two))
    directory = Path(writer.directory)
    assert (directory / "assets.extra/docs/readme.txt").read_text() == "hello"
    assert (directory / "saved_model.pbtxt").exists()


def test_a_missing_asset_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidSetting, match=r"'/no/such', and there is no such file"):
        SavedModelWriter(str(tmp_path / "m"), assets_extra={"a.txt": "/no/such"})
    assert list(tmp_path.iterdir()) == []


def test_a_tpu_metagraph_alone_brings_its_variables(tmp_path: Path) -> None:
    directory = models.export(models.half_plus_two, tmp_path, tags.SERVE_TPU)
    emulated = TpuSystem(tpu_cores=1, hosts=1, is_emulated=True)
    model = loader.load(directory, hardware=emulated)
    assert model.run("serving_default", {"x": np.array([[4]], np.float32)})["y"] == 4.0


def test_parallel_exports_get_different_versions(tmp_path: Path) -> None:
    # Build all graphs before the threads start, so that the exports run at the same time.
    metagraphs = [models.metagraph(models.half_plus_two) for _ in range(6)]
    together = threading.Barrier(len(metagraphs), timeout=60)

    def clock() -> float:
        together.wait()
        return 1000.0

    def export(one: MetagraphSpec) -> str:
        with SavedModelWriter(str(tmp_path), clock=clock) as writer:
            writer.add(one)
        return Path(writer.directory).name

    with ThreadPoolExecutor(len(metagraphs)) as pool:
        names = sorted(pool.map(export, metagraphs))
    assert names == [str(1000 + number) for number in range(6)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize("content", [[], ["saved_model.pb"]], ids=["empty", "a version"])
def test_existing_directories_are_left_alone(tmp_path: Path, content: list[str]) -> None:
    (tmp_path / "1000").mkdir()
    for name in content:
        (tmp_path / "1000" / name).write_text("theirs")
    with SavedModelWriter(str(tmp_path), clock=lambda: 1000.0) as writer:
        writer.add(models.metagraph(models.half_plus_two))
    assert Path(writer.directory).name == "1001"
    assert [path.name for path in (tmp_path / "1000").iterdir()] == content


_KILLED = """
import sys
from pathlib import Path
from tests import models
from tpuserve.export import SavedModelWriter
with SavedModelWriter(sys.argv[1]) as writer:
    writer.add(models.metagraph(models.half_plus_two))
    print("half written", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_killed_export_leaves_no_version_and_the_next_removes_what_it_left(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        cwd=Path(__file__).parents[4],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    assert line == "half written\n"
    (staging,) = tmp_path.iterdir()
    assert staging.name.startswith("temp-")
    assert (staging / "variables").is_dir()
    exported = models.export(models.half_plus_two, tmp_path)
    assert list(tmp_path.iterdir()) == [exported]


@pytest.mark.slow
def test_the_debug_info_file_is_small(tmp_path: Path) -> None:
    def deep(x: tf.Tensor) -> dict[str, tf.Tensor]:
        weights = v1.get_variable("weights", [1, 300_000], use_resource=True)
        y = tf.matmul(x, weights)
        for _ in range(100):
            y = tf.nn.relu(y) * 0.5 + 1.0
        return {"y": y}

    both = models.export(deep, tmp_path / "both")
    cpu_only = models.export(deep, tmp_path / "cpu", tags.SERVE)
    assert (both / "debug").is_dir()
    assert size(cpu_only) > 1_200_000
    assert size(both) <= 1.05 * size(cpu_only) + (both / "saved_model.pb").stat().st_size
