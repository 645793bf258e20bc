"""A load plan holds what a session needs, and refuses damaged SavedModels."""

from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import DamagedSavedModel, InvalidSetting, TpuNotFound
from tpuserve.runtime.load_plan import LoadPlan, LoadRequest, make_load_plan


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return models.export(models.half_plus_two, tmp_path / "half")


def plan_load(directory: Path, tag_set: Any = tags.SERVE, runtime: Any = None) -> LoadPlan:
    return make_load_plan(LoadRequest(directory, tag_set, TpuSystem(), runtime=runtime))


def change(directory: Path, change: Any) -> None:
    path = directory / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for meta_graph in proto.meta_graphs:
        change(meta_graph)
    path.write_bytes(proto.SerializeToString())


def test_plan_has_what_a_session_needs(directory: Path) -> None:
    plan = plan_load(directory)
    assert plan.choice.tags == tags.SERVE
    assert plan.signatures["serving_default"].inputs["x"].name == "x:0"
    session_plan = plan.runtime_plan
    assert session_plan.static_cost_signatures == {"serving_default"}
    assert session_plan.variables_path == str(directory / "variables" / "variables")
    assert session_plan.restore_op.startswith("save/restore_all")
    assert {name for segment in session_plan.segments for name in segment.retained_nodes} >= {"x"}


def test_unknown_runtime_is_refused(directory: Path) -> None:
    with pytest.raises(InvalidSetting, match="is named 'abacus'. Use one of: .*session"):
        plan_load(directory, runtime="abacus")


def test_tpu_metagraph_without_a_tpu_is_refused(directory: Path) -> None:
    with pytest.raises(TpuNotFound):
        plan_load(directory, tags.SERVE_TPU)


def test_asset_outside_of_the_model_is_refused(directory: Path) -> None:
    change(directory, lambda meta_graph: meta_graph.asset_file_def.add(filename="../../secret"))
    with pytest.raises(DamagedSavedModel, match=r"its asset ../../secret is outside of assets/"):
        plan_load(directory)


def test_initialisation_of_two_ops_is_refused(directory: Path) -> None:
    def add(meta_graph: Any) -> None:
        meta_graph.collection_def["saved_model_main_op"].node_list.value.extend(["a", "b"])

    change(directory, add)
    with pytest.raises(DamagedSavedModel, match="collection saved_model_main_op has 2 init"):
        plan_load(directory)
