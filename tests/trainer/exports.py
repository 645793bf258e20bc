"""Exports of small estimators, and what both of their metagraphs answer."""

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
    """The feature x, float32 [?, 1], as it is."""
    x = v1.placeholder(tf.float32, [None, 1], name="x")
    return trainer.ServingInputReceiver({"x": x}, {"x": x})


def parsing() -> trainer.ServingInputReceiver:
    """The feature x in tf.Examples."""
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
    """The version directory of an estimator after one step, when the slope w is 0.5."""
    estimator = programs.estimator(tmp_path / "model", **options)
    estimator.train(programs.ones(), max_steps=1)
    base = str(tmp_path / "export")
    return Path(estimator.export_saved_model(base, receiver, warm_up=warm_up).decode())


def answers(directory: Path, inputs: dict[str, Any], signature: str = "serving_default") -> Any:
    """The outputs of both metagraphs, which have to be the same within 1e-5."""
    found = []
    for tag_set, hardware in HARDWARE.items():
        model = loader.load(directory, tag_set, hardware)
        found.append(model.run(signature, inputs))
        model.close()
    cpu, tpu = found
    assert cpu.keys() == tpu.keys()
    for name in cpu:
        if cpu[name].dtype == object:
            assert cpu[name].tolist() == tpu[name].tolist()
        else:
            np.testing.assert_allclose(tpu[name], cpu[name], 1e-5, 1e-5)
    return cpu


def same_signatures(directory: Path) -> set[str]:
    """The signatures of both metagraphs, which have to be the same."""
    cpu, tpu = (
        {
            name: [
                {alias: (spec.dtype, spec.shape) for alias, spec in tensors.items()}
                for tensors in (signature.inputs, signature.outputs)
            ]
            for name, signature in each.signatures.items()
        }
        for each in metagraph.read_saved_model(directory).metagraphs
    )
    assert cpu == tpu
    return set(cpu)


def examples(**features: list[Any]) -> Any:
    """Serialized tf.Examples: feature → a number or a string for each of them."""
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
    """An array of strings, as models take them."""
    return np.array(values, object)


def three_outputs(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """The slope model with an export output of each kind."""
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


def wrapped(batches: trainer.BatchConfig | None, model_fn: Any = programs.slope_model_fn) -> Any:
    """A model_fn that is on the TPU as a whole."""

    def wrapped_model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        if mode == trainer.ModeKeys.PREDICT and params["use_tpu"]:
            return trainer.model_fn_inference_on_tpu(
                model_fn, features, labels, None, params, batches
            )
        return model_fn(features, labels, mode, params)

    return wrapped_model_fn


def check_three_outputs(directory: Path) -> None:
    """Asks each signature of `three_outputs`, exported with `parsing`, for x = 3."""
    assert same_signatures(directory) == {"serving_default", "scores", "value"}
    serialized = examples(x=[3.0])
    assert answers(directory, {"examples": serialized})["y"].tolist() == [[1.5]]
    asked = {"inputs": serialized}
    assert answers(directory, asked, "scores")["scores"].tolist() == [[1.5, -1.5]]
    assert answers(directory, asked, "value")["outputs"].tolist() == [[3.0]]


def load_by_tensorflow(directory: Path, tag_list: list[str]) -> None:
    """Loads a metagraph as TensorFlow Serving does, and reads the slope in it."""
    # Else every op must have a kernel here, whether it is run or not.
    config = v1.ConfigProto(graph_options=v1.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        v1.saved_model.loader.load(session, tag_list, str(directory))
        (slope,) = (each for each in v1.global_variables() if each.op.name == "w")
        assert session.run(slope) == 0.5
