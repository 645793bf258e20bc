"""What a session needs of a SavedModel is read once, and checked."""

from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import DamagedSavedModel, TpuNotFound
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan

pytestmark = pytest.mark.slow


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return models.export(models.half_plus_two, tmp_path / "half")


def prepared(directory: Path, wanted: Any = tags.SERVE) -> LoadPlan:
    return make_load_plan(LoadRequest(directory, wanted, TpuSystem()))


def change(directory: Path, change: Any) -> None:
    path = directory / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for each in proto.meta_graphs:
        change(each)
    path.write_bytes(proto.SerializeToString())


def test_all_that_a_session_needs_is_there(directory: Path) -> None:
    found = prepared(directory)
    assert found.choice.tags == tags.SERVE
    assert found.signatures["serving_default"].inputs["x"].name == "x:0"
    assert found.bounded == {"serving_default"}
    assert found.variables == str(directory / "variables" / "variables")
    assert found.restore_op.startswith("save/restore_all")
    assert {name for each in found.pieces for name in each.retained} >= {"x"}


def test_tpu_metagraph_without_a_tpu_is_refused(directory: Path) -> None:
    with pytest.raises(TpuNotFound):
        prepared(directory, tags.SERVE_TPU)


def test_asset_outside_of_the_model_is_refused(directory: Path) -> None:
    change(directory, lambda each: each.asset_file_def.add(filename="../../secret"))
    with pytest.raises(DamagedSavedModel, match=r"its asset ../../secret is outside of assets/"):
        prepared(directory)


def test_initialisation_of_two_ops_is_refused(directory: Path) -> None:
    def add(each: Any) -> None:
        each.collection_def["saved_model_main_op"].node_list.value.extend(["a", "b"])

    change(directory, add)
    with pytest.raises(DamagedSavedModel, match="saved_model_main_op names 2 ops"):
        prepared(directory)
