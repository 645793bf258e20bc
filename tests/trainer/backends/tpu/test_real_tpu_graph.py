"""The graph of a run on a real TPU: TensorFlow's own ops, on the devices of the TPU's workers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve.lowering.ir import op_defs
from trainer.backends.tpu import backend, evaluation, training
from trainer.backends.tpu.mode_context import TpuModeContext
from trainer.backends.tpu.tensorflow_runtime import TensorFlowRuntime
from trainer.backends.tpu.transfer.error_rendezvous import ErrorRendezvous
from trainer.distribution.topology import BatchTopology, TpuSlice
from trainer.execution import run_graph, train_loop
from trainer.model.model_program import TPUModelProgram

MODES = ("train", "eval", "infer")


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    spec = programs.slope_model_fn(features, labels, mode, params)
    rows = tf.reshape(features["x"], [-1])
    return spec._replace(host_call=(lambda rows: tf.identity(rows), [rows]))


def input_fn(params: dict[str, Any]) -> Any:
    batch = tf.ones([params["batch_size"], 1])
    return tf.data.Dataset.from_tensors(({"x": batch}, batch))


def build_nodes(mode: str, model_dir: Path, hosts: int = 2) -> Iterator[Any]:
    """Yield the nodes of a mode's graph and functions, for a real TPU with 4 cores per host."""
    settings = trainer.TPUConfig(
        per_host_input_for_training=trainer.InputPipelineConfig.PER_HOST_V2
        if mode != "infer"
        else trainer.InputPipelineConfig.BROADCAST
    )
    config = trainer.RunConfig(settings, model_dir=str(model_dir))
    system = TpuSlice(hosts, 4 * hosts, job="worker")
    program = TPUModelProgram(
        model_fn, {"rate": 0.5}, config, str(model_dir), batch_sizes={mode: 16}
    )
    topology = BatchTopology(system, settings, mode, 16)
    topology.check()
    context = TpuModeContext(
        topology, TensorFlowRuntime(system, "grpc://somewhere:1"), ErrorRendezvous()
    )
    with run_graph.new_run_graph(config) as global_step:
        if mode == "train":
            plan = train_loop.build_iteration_plan(settings)
            training.build_train_graph(program, input_fn, global_step, None, plan, context)
        elif mode == "eval":
            evaluation.build_eval_graph(program, input_fn, None, 3, context)
        else:
            checkpoint = tf.train.latest_checkpoint(str(model_dir))
            assert checkpoint is not None
            backend.build_predict_graph(
                program, input_fn, checkpoint, lambda predictions: predictions, context
            )
        definition = tf.compat.v1.get_default_graph().as_graph_def()
    library = {function.signature.name: function for function in definition.library.function}
    for node in definition.node:
        yield from op_defs.walk_calls([node], library)


@pytest.fixture(scope="module", params=MODES)
def nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """Return the nodes of one mode's graph: type of op → nodes."""
    model_dir = tmp_path_factory.mktemp("model")
    programs.estimator(model_dir).train(programs.ones(), steps=1)
    result: dict[str, list[Any]] = {}
    for node in build_nodes(request.param, model_dir):
        result.setdefault(node.op, []).append(node)
    return result


def places(nodes: list[Any]) -> list[tuple[str, int]]:
    return sorted((node.device, node.attr["device_ordinal"].i) for node in nodes)


EVERY_CORE = [
    (f"/job:worker/task:{host}/device:CPU:0", core) for host in range(2) for core in range(4)
]


def test_each_core_is_fed_by_its_own_host(nodes: dict[str, list[Any]]) -> None:
    assert places(nodes["InfeedEnqueueTuple"]) == EVERY_CORE


def test_the_results_of_each_core_are_taken_by_its_own_host(nodes: dict[str, list[Any]]) -> None:
    assert places(nodes["OutfeedDequeueTuple"]) == EVERY_CORE


def test_one_computation_is_replicated_over_all_cores(nodes: dict[str, list[Any]]) -> None:
    (replicated,) = nodes["TPUReplicateMetadata"]
    assert replicated.attr["num_replicas"].i == 8
    assert len(nodes["TPUCompilationResult"]) == 1
    assert len(nodes["InfeedDequeueTuple"]) == len(nodes["OutfeedEnqueueTuple"]) == 1


def test_nothing_is_lowered(nodes: dict[str, list[Any]]) -> None:
    assert "FIFOQueueV2" not in nodes
