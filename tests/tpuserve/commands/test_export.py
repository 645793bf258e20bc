from pathlib import Path

import keras
import numpy as np
import pytest
from click.testing import CliRunner, Result

from tpuserve import cli
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader
from tpuserve.saved_model import metagraph

pytestmark = [
    # Keras's own saving does so.
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning"),
]


def run_export(*arguments: str) -> Result:
    return CliRunner().invoke(cli.cli, ["export", *arguments])


def test_keras_file_becomes_a_saved_model_with_both_metagraphs(tmp_path: Path) -> None:
    x = keras.Input([None, 2], name="x")
    path = tmp_path / "sums.keras"
    keras.Model(x, keras.ops.sum(x, axis=1)).save(path)
    result = run_export(
        *(str(path), str(tmp_path / "sums")),
        *("--input_shape", "?,3,2", "--allowed_batch_sizes", "4", "1", "--warm_up"),
    )
    assert result.exit_code == 0, result.output
    version = Path(result.output.strip())
    assert version.parent == tmp_path / "sums"
    described = metagraph.read_saved_model(version)
    assert len(described.warm_up) == 2
    (batches,) = described.metagraphs[1].batch_functions
    assert batches.allowed_batch_sizes == (1, 4)
    for system in (TpuSystem(), TpuSystem(1, 1, is_emulated=True)):
        model = loader.load(version, hardware=system)
        (sums,) = model.run("serving_default", {"x": np.ones([1, 3, 2], np.float32)}).values()
        assert sums.tolist() == [[3, 3]]
        model.close()


@pytest.mark.parametrize("shape", ["x=", "0,2", "x=-1", "1,,2"])
def test_shape_that_cannot_be_read_is_a_usage_error(shape: str) -> None:
    result = run_export("model.keras", "out", "--input_shape", shape)
    assert result.exit_code == 2
    assert "Give a value such as x=?,224,224,3" in result.output


def test_inspect_of_a_keras_file_names_the_command_that_exports_it(tmp_path: Path) -> None:
    path = tmp_path / "scores.keras"
    keras.Sequential([keras.Input([2]), keras.layers.Dense(1)]).save(path)
    inspected = CliRunner().invoke(cli.cli, ["inspect", str(path)])
    _, command = str(inspected.exception).split("tpuserve export ")
    result = run_export(*command.split())
    assert result.exit_code == 0, result.output
    version = Path(result.output.strip())
    assert version.parent == tmp_path / "scores"
    assert CliRunner().invoke(cli.cli, ["inspect", str(version)]).exit_code == 0


@pytest.mark.slow
def test_a_model_that_looks_up_words_leaves_the_strings_on_the_host(tmp_path: Path) -> None:
    word = keras.Input((1,), dtype="string", name="word")
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
    scores = keras.layers.Dense(1, kernel_initializer="ones", name="score")(lookup(word))
    keras.Model(word, scores).save(tmp_path / "words.keras")
    result = run_export(str(tmp_path / "words.keras"), str(tmp_path / "words"))
    assert result.exit_code == 0, result.output
    (version,) = (tmp_path / "words").iterdir()
    assert result.output.strip().endswith(str(version))
    for system in (TpuSystem(), TpuSystem(1, 1, is_emulated=True)):
        model = loader.load(version, hardware=system)
        (score,) = model.run("serving_default", {"word": np.array([[b"b"]], object)}).values()
        assert score.tolist() == [[1]]
        model.close()
