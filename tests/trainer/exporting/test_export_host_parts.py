from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import trainer
from tests.trainer import exports, programs
from tests.trainer.exports import wrap_model_fn
from tpuserve.saved_model import metagraph

pytestmark = pytest.mark.slow
v1 = tf.compat.v1

BATCHES = trainer.BatchConfig(1, 4, 1000, [2, 4])

# The model returns the logits y, -y and 2 - y with y = w x; the exported w is 0.5.
X = exports.examples(x=[3.0, -3.0, 0.0])
LOGITS = [[1.5, -1.5, 0.5], [-1.5, 1.5, 3.5], [0.0, 0.0, 2.0]]


def logits_of(features: Any) -> Any:
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    y = features["x"] * w
    return tf.concat([y, -y, 2.0 - y], axis=1)


def documented_model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Build the example of TPUEstimator's docstring: a host function adds an export output."""
    if mode != trainer.ModeKeys.PREDICT:
        return programs.slope_model_fn(features, labels, mode, params)
    logits = logits_of(features)
    export_outputs = {"serving_default": trainer.PredictOutput({"logits": logits})}

    def host_call(logits: Any) -> None:
        class_ids = tf.argmax(logits, axis=-1)
        classes = tf.strings.as_string(class_ids)
        export_outputs["classes"] = trainer.ClassificationOutput(classes=classes)

    v1.tpu.outside_compilation(host_call, logits)
    return trainer.TPUEstimatorSpec(
        mode, predictions={"logits": logits}, export_outputs=export_outputs
    )


def there_and_back(features: Any, labels: Any, mode: str, params: Any) -> Any:
    """Build a model whose host function returns strings, and numbers that go back to the TPU."""
    if mode != trainer.ModeKeys.PREDICT:
        return programs.slope_model_fn(features, labels, mode, params)
    logits = logits_of(features)

    def host_call(logits: Any) -> Any:
        names = tf.gather(tf.constant(["up", "down", "rest"]), tf.argmax(logits, axis=-1))
        return names[:, tf.newaxis], tf.reduce_max(logits, axis=-1, keepdims=True)

    names, best = v1.tpu.outside_compilation(host_call, logits)
    outputs = {
        "serving_default": trainer.PredictOutput({"name": names, "rest": logits - best}),
        "classes": trainer.ClassificationOutput(classes=names, scores=best),
    }
    return trainer.TPUEstimatorSpec(mode, {"name": names}, export_outputs=outputs)


VARIANTS = {
    "V1": lambda model_fn: (model_fn, 1),
    "V2": lambda model_fn: (wrap_model_fn(None, model_fn), 2),
    "V2 batched": lambda model_fn: (wrap_model_fn(BATCHES, model_fn), 2),
}


def export(tmp_path: Path, variant: str, model_fn: Any) -> Path:
    model_fn, version = VARIANTS[variant](model_fn)
    return exports.export(
        tmp_path, exports.parsing, model_fn=model_fn, export_saved_model_api_version=version
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_documented_example_answers_with_classes_from_the_host(
    tmp_path: Path, variant: str
) -> None:
    directory = export(tmp_path, variant, documented_model_fn)
    assert exports.same_signatures(directory) == {"serving_default", "classes"}
    (computation,) = metagraph.read_saved_model(directory).metagraphs[1].computations
    assert {"ArgMax", "AsString"} <= set(computation.host_ops)
    assert exports.answers(directory, {"examples": X})["logits"].tolist() == LOGITS
    classes = exports.answers(directory, {"inputs": X}, "classes")["classes"]
    assert classes.tolist() == [b"0", b"2", b"2"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_tpu_goes_on_with_what_its_host_has_computed(tmp_path: Path, variant: str) -> None:
    directory = export(tmp_path, variant, there_and_back)
    results = exports.answers(directory, {"examples": X})
    assert results["name"].tolist() == [[b"up"], [b"rest"], [b"rest"]]
    assert results["rest"].tolist() == [[0.0, -3.0, -1.0], [-5.0, -2.0, 0.0], [-2.0, -2.0, 0.0]]
    classified = exports.answers(directory, {"inputs": X}, "classes")
    assert classified["scores"].tolist() == [[1.5], [3.5], [2.0]]
    assert classified["classes"].tolist() == results["name"].tolist()
