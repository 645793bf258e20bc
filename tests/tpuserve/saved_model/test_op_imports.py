"""Ops of packages and libraries are imported, or one sentence says why not."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.protobuf import meta_graph_pb2

from tests import text_models
from tpuserve.errors import InvalidSetting, UnsupportedModel
from tpuserve.saved_model import op_imports
from tpuserve.saved_model.op_packages import NO_IMPORTS, ImportedOps, OpsNotImported, check_imported


def graph_of(*ops: str) -> Any:
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.node.add(name="first", op=ops[0])
    function = meta_graph.graph_def.library.function.add()
    for op in ops[1:]:
        function.node_def.add(name=op, op=op)
    return meta_graph


def refusal(*names: str) -> str:
    with pytest.raises(InvalidSetting) as caught:
        op_imports.import_ops(names)
    return str(caught.value)


def test_commas_and_repetitions_name_several() -> None:
    assert op_imports.parse_names(["a,b.so", " c ", "a", ""]) == ("a", "b.so", "c")


@pytest.mark.parametrize("name", ["no_such_ops", "no-such-ops", ".ops", "os..ops"])
def test_a_package_that_is_missing_is_told(name: str) -> None:
    assert f"names {name}, and no such Python package is installed" in refusal(name)


def test_a_library_that_is_missing_is_told(tmp_path: Path) -> None:
    assert f"the library {tmp_path}/libops.so, and there is no such file" in refusal(
        f"{tmp_path}/libops.so"
    )


def test_a_package_that_registers_no_ops_is_told() -> None:
    assert "names this, which registers no ops" in refusal("this")


def test_a_package_whose_import_fails_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_test_ops.py").write_text("raise OSError('libcuda.so.1:\\n not found')\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = refusal("broken_test_ops")
    assert text.startswith("--import_ops names broken_test_ops, which TensorFlow 2.")
    assert text.endswith(
        " cannot load: libcuda.so.1: not found. Install or build it for this TensorFlow."
    )


def test_a_file_that_is_no_library_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ops.so"
    path.write_text("no library")
    assert f"{path}: file too short. Install or build" in refusal(str(path))


def test_a_library_for_another_tensorflow_is_told(tmp_path: Path) -> None:
    source = "extern void TF_Old(); static int x = (TF_Old(), 1);"
    path = text_models.build_library(tmp_path, source)
    assert "undefined symbol: _Z6TF_Oldv. Install or build" in refusal(str(path))


def test_a_package_that_is_not_installed_is_told_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    monkeypatch.setattr(op_imports, "_packages", set())
    monkeypatch.setattr(op_imports, "_named", {})
    with pytest.raises(UnsupportedModel) as caught:
        op_imports.import_packages_of([graph_of("Relu", "SentencepieceTokenizeOp")], "/models/a")
    assert str(caught.value) == (
        "cannot load /models/a: SentencepieceTokenizeOp is of tensorflow-text: pip install "
        "'.[text]'."
    )


def test_what_is_imported_or_named_is_not_missing() -> None:
    graphs = [graph_of("RougeL", "TFText>Utf8Binarize")]
    with pytest.raises(OpsNotImported) as caught:
        check_imported(graphs, NO_IMPORTS, "/models/a")
    assert caught.value.packages == {"tensorflow_text": "RougeL"}
    check_imported(graphs, ImportedOps(packages=frozenset({"tensorflow_text"})), "/models/a")
    check_imported(graphs, ImportedOps(named=frozenset({"RougeL", "TFText>Utf8Binarize"})), "")


@pytest.mark.slow
def test_tensorflow_text_is_imported_without_keras(tmp_path: Path) -> None:
    program = (
        "import sys; from tpuserve.runtime import serving_import\n"
        "serving_import.import_tensorflow_for_serving()\n"
        "from tpuserve.saved_model import op_imports\n"
        "op_imports.import_ops('tensorflow_text')\n"
        "ops = op_imports.imported()\n"
        "assert {'SentencepieceOp', 'RougeL'} <= ops.named\n"
        "assert ops.packages == {'tensorflow_text'}\n"
        "assert 'keras' not in sys.modules\n"
        "import tensorflow_text\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
