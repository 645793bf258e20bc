from pathlib import Path

import pytest
from google.protobuf import text_format

from tests.tpuserve import saved_models
from tests.tpuserve.saved_models import WORDS, add_function
from tpuserve import tags
from tpuserve.errors import NotFound
from tpuserve.proto import saved_model_pb2 as pb
from tpuserve.saved_model import metagraph, warm_up_file
from tpuserve.saved_model.metagraph import BatchFunction, TpuComputation
from tpuserve.saved_model.signature import TensorSpec
from tpuserve.saved_model.variables import DeclaredVariable


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return saved_models.write_saved_model(saved_models.half_plus_two(), tmp_path / "half" / "1")


def test_metagraphs_are_described_with_tags_and_signatures(directory: Path) -> None:
    model = metagraph.read_saved_model(directory)
    assert [graph.tags for graph in model.metagraphs] == [tags.SERVE, tags.SERVE_TPU]
    signature = model.metagraphs[0].signatures["serving_default"]
    assert signature.inputs == {"x": TensorSpec("x:0", "float32", (None, 1))}
    assert model.variables_bytes == 5


def test_ops_are_counted_by_device(directory: Path) -> None:
    cpu, tpu = metagraph.read_saved_model(directory).metagraphs
    assert cpu.host_ops == {"Placeholder": 1, "Mul": 1, "Add": 1}
    assert cpu.computations == ()
    assert tpu.host_ops == {"Placeholder": 1, "TPUPartitionedCall": 1}
    assert tpu.computations == (
        TpuComputation("computation", {"Mul": 2, "Add": 1}, {"AsString": 1}, ""),
    )


def test_computation_in_a_batch_function_is_described() -> None:
    _, tpu = metagraph.read_saved_model(WORDS).metagraphs
    (batch,) = tpu.batch_functions
    (computation,) = tpu.computations
    assert computation.batched_by == batch.function
    assert computation.tpu_ops["MatMul"] == 1
    assert computation.host_ops == {"AsString": 1}
    assert tpu.host_ops["LookupTableFindV2"] == 1
    assert "MatMul" not in tpu.host_ops


def test_batch_function_is_described_with_its_settings() -> None:
    cpu, tpu = metagraph.read_saved_model(WORDS).metagraphs
    (batch,) = tpu.batch_functions
    assert batch == BatchFunction(
        name="model/batch/BatchFunction",
        function=batch.function,
        num_batch_threads=2,
        max_batch_size=4,
        batch_timeout_micros=5000,
        allowed_batch_sizes=(1, 4),
        max_enqueued_batches=100,
    )
    assert cpu.batch_functions == ()


def test_batch_function_in_a_function_has_the_defaults_of_its_op(tmp_path: Path) -> None:
    graph = pb.GraphDef()
    graph.node.add(op="PartitionedCall").attr["f"].func.name = "outer"
    node = add_function(graph, "outer").node_def.add(name="batch", op="BatchFunction")
    node.attr["f"].func.name = "gone"
    directory = saved_models.write_saved_model(
        saved_models.saved_model_with_graph(graph), tmp_path / "1"
    )
    (description,) = metagraph.read_saved_model(directory).metagraphs
    assert description.batch_functions == (BatchFunction("batch", "gone", 0, 0, 0, (), 10),)


def test_both_metagraphs_declare_the_same_variables() -> None:
    cpu, tpu = metagraph.read_saved_model(WORDS).metagraphs
    assert cpu.variables == tpu.variables
    assert cpu.variables == (
        DeclaredVariable("model/dense/bias", "float32", (2,), 8),
        DeclaredVariable("model/dense/embedding", "float32", (4, 8), 128),
        DeclaredVariable("model/dense/kernel", "float32", (8, 2), 64),
    )


def test_assets_extra_files_and_warm_up_requests_are_described() -> None:
    model = metagraph.read_saved_model(WORDS)
    assert [graph.assets for graph in model.metagraphs] == [("vocabulary.txt",)] * 2
    assert model.extra_files == ("tf_serving_warmup_requests",)
    assert [record.inputs["words"].shape for record in model.warm_up] == [(1, 5), (4, 5)]
    assert model.problems == ()


def test_problems_are_reported_with_the_rest_of_the_description(tmp_path: Path) -> None:
    directory = saved_models.copy_of_words(tmp_path / "1")
    (directory / "variables" / "variables.index").unlink()
    (directory / warm_up_file.PATH).write_bytes(b"damaged")
    model = metagraph.read_saved_model(directory)
    assert len(model.metagraphs) == 2
    assert model.warm_up == ()
    without_variables, without_warm_up = model.problems
    assert "variables/variables.index is missing" in without_variables
    assert "remove the file to serve without warm-up" in without_warm_up


def test_metagraphs_can_be_read_without_the_other_files(tmp_path: Path) -> None:
    directory = saved_models.copy_of_words(tmp_path / "1")
    (directory / warm_up_file.PATH).write_bytes(b"damaged")
    assert metagraph.read_metagraphs(directory) == metagraph.read_saved_model(WORDS).metagraphs


def test_model_in_text_format_is_described(tmp_path: Path) -> None:
    text = text_format.MessageToString(saved_models.half_plus_two())
    (tmp_path / "saved_model.pbtxt").write_text(text)
    assert len(metagraph.read_saved_model(tmp_path).metagraphs) == 2


def test_missing_directory_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no directory .*/gone"):
        metagraph.read_saved_model(tmp_path / "gone")


def test_tpu_computation_is_found_under_any_tags(tmp_path: Path) -> None:
    model = saved_models.half_plus_two()
    # The exporters of object detection models save the TPU graph under {serve}, too.
    model.meta_graphs[0].graph_def.CopyFrom(model.meta_graphs[1].graph_def)
    described = metagraph.read_metagraphs(saved_models.write_saved_model(model, tmp_path / "1"))
    assert [metagraph.has_tpu_computation for metagraph in described] == [True, True]
    assert metagraph.untagged_tpu_graphs(described) == (frozenset({"serve"}),)


def test_computation_without_a_call_is_found(tmp_path: Path) -> None:
    graph = pb.GraphDef()
    graph.node.add(name="metadata", op="TPUReplicateMetadata")
    directory = saved_models.write_saved_model(
        saved_models.saved_model_with_graph(graph), tmp_path / "1"
    )
    assert metagraph.read_metagraphs(directory)[0].has_tpu_computation
