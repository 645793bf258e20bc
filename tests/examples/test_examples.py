"""Every example runs, and prints the output in its docstring."""

import json
import re
from pathlib import Path

import httpx
import pytest

from tests import processes
from tests.preloaded.process import run_preloaded
from tpuserve import tags

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(name: str, *arguments: str) -> str:
    finished = run_preloaded([str(EXAMPLES / name), *arguments])
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def half_plus_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the base path of the example's export."""
    directory = tmp_path_factory.mktemp("half")
    version = Path(run_example("half_plus_two.py", str(directory)).strip())
    assert version.parent == directory / "export"
    return version.parent


def test_the_export_can_be_inspected(half_plus_two: Path) -> None:
    finished = processes.run_tpuserve("inspect", *map(str, half_plus_two.iterdir()))
    assert finished.returncode == 0
    assert "metagraph {serve, tpu}" in finished.stdout


def example(name: str) -> str:
    """Return the docstring of an example."""
    return (EXAMPLES / name).read_text().split('"""')[1]


def find_docstring_line(name: str, start: str) -> str:
    """Return the stripped line of an example's docstring that begins with `start`."""
    lines = example(name).splitlines()
    (documented_line,) = (line.strip() for line in lines if line.strip().startswith(start))
    return documented_line


@pytest.mark.parametrize("tag_set", [tags.SERVE, tags.SERVE_TPU], ids=tags.format_tags)
@pytest.mark.numeric
def test_half_plus_two_trains_exports_and_answers_as_documented(
    half_plus_two: Path, tag_set: tags.TagSet
) -> None:
    request = re.search(r"-d '(.*)'", find_docstring_line("half_plus_two.py", "$ curl"))
    assert request
    with processes.serving(half_plus_two, tag_set) as server:
        url = f"http://{server.rest}/v1/models/half:predict"
        answer = httpx.post(url, content=request[1], timeout=60).json()["predictions"]
        (text,) = re.findall(r"^ +(\{$.*?\})$", example("half_plus_two.py"), re.M | re.S)
        expected = json.loads(text)["predictions"]
        assert [pytest.approx(row, abs=1e-5) for row in expected] == answer
        line = run_example("ask_grpc.py", server.rpc, "half", "1", "2", "5")
    version = next(version.name for version in half_plus_two.iterdir())
    assert line == f"half version {version}: [[2.5], [3.0], [4.5]]\n"
    assert line.split(": ")[1].strip() in find_docstring_line(
        "ask_grpc.py", "half_plus_two version"
    )


@pytest.mark.numeric
def test_a_program_that_disables_tensorflow_2_behavior_trains_and_exports(
    tmp_path: Path,
) -> None:
    program = (EXAMPLES / "half_plus_two.py").read_text()
    changed = program.replace("import trainer\n", "import trainer\n\ntf.disable_v2_behavior()\n")
    assert changed != program
    (tmp_path / "program.py").write_text(changed)
    version = Path(run_example(str(tmp_path / "program.py"), str(tmp_path)).strip())
    with processes.serving(version.parent, tags.SERVE_TPU) as server:
        response = httpx.post(
            f"http://{server.rest}/v1/models/half:predict",
            content='{"inputs": 5}',
            timeout=60,
        )
    assert response.json()["outputs"] == pytest.approx(4.5, abs=1e-5)


def test_mnist_trains_evaluates_and_exports(tmp_path: Path) -> None:
    from trainer.demo import digits

    for name, examples in zip(("train", "test"), digits.load_digits(), strict=True):
        digits.write_tfrecord(examples, tmp_path / f"{name}.tfrecord")
    directories = [f"--{name}_dir={tmp_path / name}" for name in ("model", "export")]
    printed = run_example("mnist.py", f"--data_dir={tmp_path}", *directories, "--steps=20")
    metrics, version = printed.splitlines()
    assert "'accuracy'" in metrics
    assert "'global_step': 20" in metrics
    assert (Path(version) / "saved_model.pb").exists()


def test_every_example_is_short_and_has_a_test() -> None:
    files = [
        *Path(__file__).parent.glob("test_*.py"),
        *EXAMPLES.glob("../tests/documents/test_*.py"),
        *EXAMPLES.glob("../tests/clusters/test_*.py"),
    ]
    tests = "".join(file.read_text() for file in files)
    for example in EXAMPLES.glob("*.py"):
        assert len(example.read_text().splitlines()) <= 110, example
        assert f'"{example.name}"' in tests
