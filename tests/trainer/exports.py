"""Exports small estimators, and runs the CPU and the TPU metagraph of the exports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import trainer
from tests.trainer import programs
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.runtime import loader
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1

HARDWARE = {
    tags.SERVE: TpuSystem(),
    tags.SERVE_TPU: TpuSystem(tpu_cores=1, hosts=1, is_emulated=True),
}


def raw() -> trainer.ServingInputReceiver:
    """Return a receiver whose placeholder is the feature x, float32 [?, 1]."""
    x = v1.placeholder(tf.float32, [None, 1], name="x")
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


def parsing() -> trainer.ServingInputReceiver:
    """Return a receiver that parses the feature x from serialized tf.Examples."""
    spec = {"x": tf.io.FixedLenFeature([1], tf.float32)}
    receiver: trainer.ServingInputReceiver = trainer.build_parsing_serving_input_receiver_fn(spec)()
    return receiver


def export(
    tmp_path: Path,
    receiver: Callable[[], Any] = raw,
    *,
    warm_up: Any = None,
    **options: Any,
) -> Path:
    """Train for one step, so that w = 0.5; return the version directory of the export."""
    estimator = programs.estimator(tmp_path / "model", **options)
    estimator.train(programs.ones(), max_steps=1)
    base = str(tmp_path / "export")
    return Path(estimator.export_saved_model(base, receiver, warm_up=warm_up).decode())


def answers(directory: Path, inputs: dict[str, Any], signature: str = "serving_default") -> Any:
    """Run both metagraphs; assert that their outputs agree within 1e-5, and return the outputs."""
    outputs = []
    for tag_set, hardware in HARDWARE.items():
        model = loader.load(directory, tag_set, hardware)
        outputs.append(model.run(signature, inputs))
        model.close()
    cpu, tpu = outputs
    assert cpu.keys() == tpu.keys()
    for name in cpu:
        if cpu[name].dtype == object:
            assert cpu[name].tolist() == tpu[name].tolist()
        else:
            np.testing.assert_allclose(tpu[name], cpu[name], 1e-5, 1e-5)
    return cpu


def same_signatures(directory: Path) -> set[str]:
    """Assert that both metagraphs have the same signatures, and return the signature names."""
    cpu, tpu = (
        {
            name: [
                {alias: (spec.dtype, spec.shape) for alias, spec in tensors.items()}
                for tensors in (signature.inputs, signature.outputs)
            ]
            for name, signature in metagraph.signatures.items()
        }
        for metagraph in metagraph.read_saved_model(directory).metagraphs
    )
    assert cpu == tpu
    return set(cpu)


def examples(**features: list[Any]) -> Any:
    """Return serialized tf.Examples; `features` maps a feature to its values, one per example."""
    rows = []
    for values in zip(*features.values(), strict=True):
        example = tf.train.Example()
        for name, value in zip(features, values, strict=True):
            feature = example.features.feature[name]
            if isinstance(value, bytes):
                feature.bytes_list.value.append(value)
            else:
                feature.float_list.value.append(value)
        rows.append(example.SerializeToString())
    return strings(rows)


def strings(values: list[bytes]) -> Any:
    """Return strings as an array of dtype object, which models accept."""
    return np.array(values, object)


def three_outputs(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Build the slope model with a PredictOutput, a ClassificationOutput and a RegressionOutput."""
    spec = programs.slope_model_fn(features, labels, mode, params)
    if mode != trainer.ModeKeys.PREDICT:
        return spec
    y = spec.predictions["y"]
    outputs = {
        "serving_default": trainer.PredictOutput({"y": y}),
        "scores": trainer.ClassificationOutput(scores=tf.concat([y, -y], axis=1)),
        "value": trainer.RegressionOutput(y * 2.0),
    }
    return trainer.TPUEstimatorSpec(mode, predictions=spec.predictions, export_outputs=outputs)


def wrap_model_fn(
    batches: trainer.BatchConfig | None, model_fn: Any = programs.slope_model_fn
) -> Any:
    """Return a model_fn that runs another one on the TPU by `model_fn_inference_on_tpu`."""

    def wrapped_model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode == trainer.ModeKeys.PREDICT and params["use_tpu"]:
            return trainer.model_fn_inference_on_tpu(
                model_fn, features, labels, None, params, batches
            )
        return model_fn(features, labels, mode, params)

    return wrapped_model_fn


def check_three_outputs(directory: Path) -> None:
    """Check the outputs of an export of `three_outputs` with the receiver `parsing` for x = 3."""
    assert same_signatures(directory) == {"serving_default", "scores", "value"}
    serialized = examples(x=[3.0])
    assert answers(directory, {"examples": serialized})["y"].tolist() == [[1.5]]
    inputs = {"inputs": serialized}
    assert answers(directory, inputs, "scores")["scores"].tolist() == [[1.5, -1.5]]
    assert answers(directory, inputs, "value")["outputs"].tolist() == [[3.0]]


def load_by_tensorflow(directory: Path, tag_list: list[str]) -> None:
    """Load a metagraph with TensorFlow's loader, and check that w is 0.5."""
    # Place only the ops that run: the TPU ops of the graph have no kernel for the CPU.
    config = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        v1.saved_model.loader.load(session, tag_list, str(directory))
        (slope,) = (variable for variable in v1.global_variables() if variable.op.name == "w")
        assert session.run(slope) == 0.5
