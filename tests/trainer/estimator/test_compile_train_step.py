"""The training step of a TPUEstimator is compiled for TPUs, with its all-reduce, without a TPU."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.trainer import programs
from tests.trainer.backends.tpu.pjrt import divided_table
from tests.trainer.embedding import sums
from tpuserve.compilation.compiler import Compiler
from tpuserve.compilation.train_step.request import TrainStepRequest, find_pending, pending
from tpuserve.errors import InvalidInput, InvalidSetting
from trainer.embedding.optimization_parameters import AdagradParameters
from trainer.estimator.train_step_builder import TrainStepBuilder
from trainer.model.model_program import TPUModelProgram

pytest.importorskip("jax")
pytest.importorskip("libtpu")

pytestmark = pytest.mark.slow

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1) as compiler:
        yield compiler


def matrix_model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Build a linear model with a matrix [1, 1000], whose gradients the replicas sum."""
    matrix = v1.get_variable("matrix", [1, 1000], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean((tf.matmul(features["x"], matrix) - labels) ** 2)
    optimizer = trainer.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.1))
    train_op = optimizer.minimize(loss, global_step=v1.train.get_global_step())
    return trainer.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def text_model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    tf.strings.as_string(features["x"])
    number = tf.strings.to_number(tf.strings.as_string(features["x"]))
    return matrix_model_fn({"x": number}, labels, mode, params)


def input_fn(params: dict[str, Any]) -> Any:
    batch = tf.ones([params["batch_size"], 1])
    return tf.data.Dataset.from_tensors(({"x": batch}, batch)).repeat()


def answer(
    compiler: Compiler,
    estimator: Any,
    topology: str,
    *batch_sizes: int,
    input_fn: Callable[..., Any] = input_fn,
) -> Any:
    """Call `train` while a request to compile is pending; return the request's compilations."""
    targets = compiler.describe_targets([topology])
    request = TrainStepRequest(compiler, targets, batch_sizes)
    with pending(request), pytest.raises(SystemExit) as exit_:
        estimator.train(input_fn, max_steps=10)
    assert not exit_.value.code
    assert find_pending() is None
    assert request.report is not None
    return request.report.compilations


def test_step_of_four_replicas_has_one_all_reduce_of_gradient_and_loss(
    compiler: Compiler, tmp_path: Path
) -> None:
    model = programs.estimator(tmp_path, model_fn=matrix_model_fn, train_batch_size=64)
    first, second = answer(compiler, model, "v5e:2x2", 64, 30)
    assert first.error is None
    assert (first.replicas, first.batch_size) == (4, 64)
    # The all-reduce sums 1000 elements of the gradient and one of the loss, in float32.
    assert first.result.reduced_bytes == 4 * 1001
    assert first.result.num_all_reduces == 1
    # The matrix is updated in place.
    assert first.result.aliased_bytes >= 4 * 1000
    assert 0 < first.hbm_fraction < 0.01
    assert "train_batch_size (30) must be divisible by the number of replicas (4)" in second.error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("topology", "advice"),
    [
        ("v5e:1x1", "has 1 device. To compile for such a TPU, give --topology v5e:2x4, or set"),
        ("v6e:2x2", "has 4 devices. To compile for such a TPU, give --topology v6e:2x4, or set"),
    ],
)
def test_a_topology_of_other_size_than_num_shards_names_one_that_fits(
    compiler: Compiler, tmp_path: Path, topology: str, advice: str
) -> None:
    config = trainer.RunConfig(trainer.TPUConfig(num_shards=8))
    model = trainer.TPUEstimator(
        matrix_model_fn, str(tmp_path), config, use_tpu=False, train_batch_size=64
    )
    (compilation,) = answer(compiler, model, topology)
    assert compilation.error.startswith(f"TPUConfig num_shards is 8, and {topology} {advice}")


def test_each_chip_has_memory_for_its_rows_of_a_divided_table(
    compiler: Compiler, tmp_path: Path
) -> None:
    initial = np.zeros((40_000, 128), np.float32)
    model = divided_table.estimator(tmp_path, "mod", 4, initial=initial)
    (compilation,) = answer(compiler, model, "v5e:2x2", input_fn=divided_table.input_fn)
    assert compilation.error is None
    rows_bytes = initial.nbytes // 4
    assert rows_bytes <= compilation.result.aliased_bytes < 1.01 * rows_bytes
    assert compilation.stats.argument_bytes < 1.01 * rows_bytes
    assert compilation.stats.temporary_bytes < 0.1 * rows_bytes


def test_step_with_a_sparse_feature_is_compiled_for_the_ids_of_the_first_batch(
    compiler: Compiler, tmp_path: Path
) -> None:
    # Three ids at most in a row of this batch, and one in those of the next.
    batches = sums.batches(sums.IDS, [[1], [2], [3], [4]])
    model = sums.estimator(tmp_path, sums.spec(AdagradParameters(0.1)))
    (compilation,) = answer(compiler, model, "v5e:2x2", input_fn=batches)
    assert compilation.error is None
    assert isinstance(model._program, TPUModelProgram)
    (target,) = compiler.describe_targets(["v5e:2x2"])
    step = TrainStepBuilder(model._program, batches, None).build(target, batch_size=4)
    arguments = step.arguments[: step.layout.num_feeds]
    assert sorted(arguments) == [((1, 1), "float32"), ((1, 4), "float32"), ((1, 4), "int32")]


def test_method_compiles_at_the_train_batch_size_of_a_cpu_program(tmp_path: Path) -> None:
    model = programs.estimator(tmp_path, model_fn=matrix_model_fn, train_batch_size=8)
    (compilation,) = model.compile_train_step(input_fn, "v6e:1x1").compilations
    assert compilation.error is None
    assert (compilation.replicas, compilation.batch_size) == (1, 8)


def test_op_that_xla_refuses_is_named_with_its_line(compiler: Compiler, tmp_path: Path) -> None:
    model = programs.estimator(tmp_path, model_fn=text_model_fn, train_batch_size=8)
    (compilation,) = answer(compiler, model, "v5e:2x2")
    assert "AsString" in compilation.error
    assert "test_compile_train_step.py:" in compilation.error


def test_model_parallelism_is_refused_by_its_name(compiler: Compiler, tmp_path: Path) -> None:
    config = trainer.RunConfig(
        trainer.TPUConfig(
            num_cores_per_replica=2,
            per_host_input_for_training=trainer.InputPipelineConfig.PER_HOST_V2,
        ),
        model_dir=str(tmp_path),
    )
    model = trainer.TPUEstimator(matrix_model_fn, config=config, train_batch_size=8)
    (compilation,) = answer(compiler, model, "v5e:2x2")
    assert compilation.error.startswith("num_cores_per_replica is 2: a step that is split")


def test_missing_batch_size_is_an_error(tmp_path: Path) -> None:
    model = programs.estimator(tmp_path, model_fn=matrix_model_fn)
    with pytest.raises(InvalidSetting, match="train_batch_size is None, and no batch size"):
        model.compile_train_step(input_fn, "v5e:1x1")


def test_unknown_topology_is_an_error(tmp_path: Path) -> None:
    model = programs.estimator(tmp_path, model_fn=matrix_model_fn, train_batch_size=8)
    with pytest.raises(InvalidInput, match="libtpu does not support topology 'v9:1x1'"):
        model.compile_train_step(input_fn, "v9:1x1")
