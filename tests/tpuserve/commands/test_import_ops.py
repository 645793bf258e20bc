"""The commands take models with ops of tensorflow_text and of an own library."""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests import text_models
from tpuserve.commands.analyse import analyse
from tpuserve.commands.compile import compile
from tpuserve.commands.convert import convert
from tpuserve.commands.predict import predict
from tpuserve.commands.verify import verify
from tpuserve.errors import InvalidSetting, UnsafeModel, UnsupportedModel
from tpuserve.runtime import loader
from tpuserve.saved_model import op_imports


def run(command: click.Command, *arguments: Any) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_models.save_bert_like(tmp_path_factory.mktemp("bert") / "1")


@pytest.mark.parametrize("command", [analyse, compile, convert, predict, verify])
def test_a_missing_package_is_told_before_all_else(command: click.Command, tmp_path: Path) -> None:
    result = run(command, tmp_path, "--import_ops", "no_such_ops")
    assert isinstance(result.exception, InvalidSetting)
    assert "names no_such_ops, and no such Python package is installed" in str(result.exception)


@pytest.mark.slow
def test_the_tokenizer_stays_on_the_host_and_the_network_goes_to_the_tpu(
    bert: Path, tmp_path: Path
) -> None:
    result = run(convert, bert, tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    (signature,) = json.loads(result.stdout)["conversion"]["signatures"]
    on_host = {op["op"] for op in signature["host_ops"]}
    assert {"WordpieceTokenizeWithOffsets", "RegexSplitWithOffsets"} <= on_host
    assert not on_host & {"MatMul", "GatherV2", "Softmax"}
    verified = run(verify, tmp_path / "out", "--json", "--runs", "0")
    assert verified.exit_code == 0, verified.output
    compiled = run(compile, tmp_path / "out", "--topology", "v5e:1x1", "--batch-size", 8, "--json")
    assert compiled.exit_code == 0, compiled.output


@pytest.mark.slow
def test_a_table_that_nothing_checks_is_trusted_where_its_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(op_imports, "_named", {})
    model = text_models.save_fast_bert_like(tmp_path / "1")
    with pytest.raises(UnsafeModel, match="or name tensorflow_text with --import_ops if you trust"):
        loader.load(model, forbid_unsafe_ops=True)
    op_imports.import_ops("tensorflow_text")
    loaded = loader.load(model, forbid_unsafe_ops=True)
    tokens = loaded.run("serving_default", {"text": np.array([b"the greatest film"], object)})
    assert tokens["tokens"].tolist() == [[4, 5, 6, 8]]
    loaded.close()


@pytest.mark.slow
def test_records_are_predicted_with_the_op_of_a_library(tmp_path: Path) -> None:
    model, library = text_models.save_triple(tmp_path / "1"), text_models.build_library(tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"x": 1.5}\n{"x": 2}\n')
    flags = ["--inputs", rows, "--outputs", tmp_path / "out", "--output-format", "jsonl"]
    result = run(predict, model, *flags, f"--import_ops={library}")
    assert result.exit_code == 0, result.output
    assert f"imported {library}; number of its ops: 1" in result.stderr
    (output,) = (tmp_path / "out").glob("predictions-*")
    assert [json.loads(line) for line in output.read_text().splitlines()] == [{"y": 4.5}, {"y": 6}]


@pytest.mark.parametrize("forbid_unsafe_ops", [True, False])
@pytest.mark.parametrize(
    ("op", "text"),
    [
        (
            "SimpleMLInferenceOpWithHandle",
            "SimpleMLInferenceOpWithHandle is of tensorflow-decision-forests: install its version "
            "for this TensorFlow, if there is one, and import it with --import_ops=tensorflow_dec",
        ),
        ("NobodysOp", "1 NobodysOp. Name the package or the library that registers them with"),
    ],
)
def test_an_unknown_op_is_told_with_what_to_do(
    op: str, text: str, forbid_unsafe_ops: bool, tmp_path: Path
) -> None:
    model = text_models.save_triple(tmp_path / "1", op)
    with pytest.raises(UnsupportedModel, match=text):
        loader.load(model, forbid_unsafe_ops=forbid_unsafe_ops)
    converted = run(convert, model, tmp_path / "out")
    assert isinstance(converted.exception, UnsupportedModel)
    assert text in str(converted.exception)
