"""The kinds of export. Each kind exports models, and provides requests for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.tpu import functional
from tensorflow.python.tpu.ops import tpu_ops

import tpuserve
import trainer
from tests.conformance.exports import keras_models, models
from tests.conformance.exports.model import (
    ROWS,
    Features,
    Model,
    classifier,
    estimator,
    predictions,
)
from tpuserve.saved_model import metagraph

v1 = tf.compat.v1

# A request of 8 rows is not padded; a request of 3 rows is padded to 4.
ALLOWED_BATCH_SIZES = (4, 8)
BATCHES = trainer.BatchConfig(
    num_batch_threads=2,
    max_batch_size=8,
    batch_timeout_micros=1000,
    allowed_batch_sizes=ALLOWED_BATCH_SIZES,
)
_BATCH_ARGUMENTS = (2, 8, 1000, list(ALLOWED_BATCH_SIZES))

Inputs: TypeAlias = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class ExportedModel:
    """An exported model and its requests.

    Attributes:
      directory: the version directory.
      requests: signature name → inputs of a request, with `ROWS` rows.
      batch_sizes: the batch sizes to compile for. If there are several, the graph has a
        BatchFunction that pads to these sizes.
    """

    directory: Path
    requests: Mapping[str, Inputs]
    batch_sizes: Sequence[int] = (ROWS,)


@dataclass(frozen=True)
class Kind:
    """A kind of export, which is a row of the table in docs/conformance.md.

    Attributes:
      name: the name in the table.
      what: a line for the document about which part of a model runs on the TPU.
      models: model name → function that exports the model. It takes the directory of the model's
        checkpoint and the base directory to write to.
    """

    name: str
    what: str
    models: Mapping[str, Callable[[Path, Path], ExportedModel]]


def _estimators(
    kind: Callable[[Model, Path, Path], ExportedModel], *those: Model
) -> dict[str, Callable[[Path, Path], ExportedModel]]:
    def bound(model: Model) -> Callable[[Path, Path], ExportedModel]:
        return lambda model_dir, base: kind(model, model_dir, base)

    return {variable.name: bound(variable) for variable in those}


def _version(exported: Any) -> Path:
    return Path(tf.compat.as_str(exported))


def _as_a_whole(model: Model, model_dir: Path, base: Path) -> ExportedModel:
    tpu_estimator = estimator(model.model_fn, model_dir)
    exported = tpu_estimator.export_saved_model(str(base), model.dense_receiver_fn)
    return ExportedModel(_version(exported), {"serving_default": model.features})


def _export_batched(model: Model, model_dir: Path, base: Path) -> ExportedModel:
    def model_fn(features: Features, labels: Any, mode: str, params: Any) -> Any:
        if params["use_tpu"]:
            return trainer.model_fn_inference_on_tpu(
                model.model_fn, features, labels, None, params, BATCHES
            )
        return model.model_fn(features, labels, mode, params)

    exported = estimator(model_fn, model_dir, 2).export_saved_model(
        str(base), model.dense_receiver_fn
    )
    requests = {"serving_default": model.features}
    return ExportedModel(_version(exported), requests, ALLOWED_BATCH_SIZES)


def _batched_part(model: Model, model_dir: Path, base: Path) -> ExportedModel:
    """Export with a BatchFunction around the network; the lookup of strings is in front of it."""

    def place(network: Callable[[Features], Any], features: Features) -> Any:
        (logits,) = trainer.inference_on_tpu(network, features, *_BATCH_ARGUMENTS)
        return logits

    return _export_placed(model, place, model_dir, base)


def _by_hand(model: Model, model_dir: Path, base: Path) -> ExportedModel:
    """Export with BatchFunction and TPU computation built by functions of TensorFlow alone."""

    def place(network: Callable[[Features], Any], features: Features) -> Any:
        ((name, dense),) = features.items()

        @tf.nondifferentiable_batch_function(*_BATCH_ARGUMENTS, autograph=False)
        def batched(rows: Any) -> Any:
            @function.Defun(capture_resource_var_by_value=False)
            def computation() -> Any:
                return v1.tpu.rewrite(lambda batch: network({name: batch}), [rows])

            return functional.TPUPartitionedCall(
                args=computation.captured_inputs,
                device_ordinal=tpu_ops.tpu_ordinal_selector(),
                Tout=[argument.type for argument in computation.definition.signature.output_arg],
                f=computation,
            )

        (logits,) = batched(dense)
        logits.set_shape([None, model.classes])
        return logits

    return _export_placed(model, place, model_dir, base)


def _export_placed(model: Model, place: Any, model_dir: Path, base: Path) -> ExportedModel:
    tpu_estimator = estimator(classifier(model, place), model_dir, 2)
    exported = tpu_estimator.export_saved_model(str(base), model.raw_receiver_fn)
    requests = {"serving_default": model.features}
    return ExportedModel(_version(exported), requests, ALLOWED_BATCH_SIZES)


def _outside(model: Model, model_dir: Path, base: Path) -> ExportedModel:
    """Export with two outside compilations.

    One computes string classes, as in the documented example. The TPU computes with the results of
    the other.
    """

    def heads(logits: Any) -> dict[str, Any]:
        best = v1.tpu.outside_compilation(
            lambda rows: tf.reduce_max(rows, axis=-1, keepdims=True), logits
        )
        behind = best - logits
        outputs = {"serving_default": trainer.PredictOutput({"behind": behind})}

        def host_call(logits: Any) -> None:
            classes = tf.strings.as_string(tf.argmax(logits, axis=-1))
            outputs["classes"] = trainer.ClassificationOutput(classes=classes)

        v1.tpu.outside_compilation(host_call, logits)
        return outputs

    return _with_heads(model, heads, model_dir, base)


def _multi_head(model: Model, model_dir: Path, base: Path) -> ExportedModel:
    def heads(logits: Any) -> dict[str, Any]:
        outputs = predictions(logits)
        return {
            "serving_default": trainer.PredictOutput(outputs),
            "logits": trainer.PredictOutput({"logits": logits}),
            "scores": trainer.ClassificationOutput(scores=outputs["probabilities"]),
            "certainty": trainer.RegressionOutput(
                tf.reduce_max(outputs["probabilities"], axis=1, keepdims=True)
            ),
        }

    return _with_heads(model, heads, model_dir, base)


def _with_heads(model: Model, heads: Any, model_dir: Path, base: Path) -> ExportedModel:
    model_fn = classifier(model, heads=heads)
    # Take tf.Examples, because the Classify API of TensorFlow Serving sends them.
    exported = estimator(model_fn, model_dir).export_saved_model(
        str(base), model.parsing_receiver_fn
    )
    directory = _version(exported)
    return ExportedModel(directory, _by_method(directory, model.examples()))


def _parsing(model: Model, model_dir: Path, base: Path) -> ExportedModel:
    tpu_estimator = estimator(model.model_fn, model_dir)
    exported = tpu_estimator.export_saved_model(str(base), model.parsing_receiver_fn)
    return ExportedModel(_version(exported), {"serving_default": {"examples": model.examples()}})


def _by_method(directory: Path, examples: np.ndarray[Any, Any]) -> dict[str, Inputs]:
    """Return signature name → request with the same tf.Examples, under its only input's alias."""
    described = metagraph.read_saved_model(directory).metagraphs[0].signatures
    requests: dict[str, Inputs] = {}
    for name, signature in described.items():
        (alias,) = signature.inputs
        requests[name] = {alias: examples}
    return requests


def _keras(make: Callable[[], Any], features: Inputs) -> Callable[[Path, Path], ExportedModel]:
    def kind(_: Path, base: Path) -> ExportedModel:
        model = make()
        directory = tpuserve.export.export(model, None, base)
        return ExportedModel(Path(directory), {"serving_default": features})

    return kind


def _restore_variables(network: tf.Module, model_dir: Path) -> Any:
    """Assign the values of a checkpoint to the network's variables; return the network."""
    checkpoint = tf.train.load_checkpoint(str(model_dir))
    for variable in network.trainable_variables:
        variable.assign(checkpoint.get_tensor(variable.name.removesuffix(":0")))
    return network


def _plain_text(model_dir: Path, base: Path) -> ExportedModel:
    """Export a tf.Module that looks words up on the host and runs the network on the TPU."""
    network = _restore_variables(models.TextClassifier(), model_dir)
    network.words = models.vocabulary()

    class Serving(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def __call__(self, text: Any, use_tpu: bool) -> Any:
            features = {"ids": models.ids_of(text, network.words)}
            if not use_tpu:
                return predictions(network(features))
            (logits,) = trainer.inference_on_tpu(network, features, *_BATCH_ARGUMENTS)
            return predictions(logits)

    specs = {"text": tf.TensorSpec([None], tf.string)}
    directory = tpuserve.export.export(Serving(), specs, base)
    requests = {"serving_default": models.TEXT.features}
    return ExportedModel(Path(directory), requests, ALLOWED_BATCH_SIZES)


def _plain_transformer(model_dir: Path, base: Path) -> ExportedModel:
    """Export a tf.Module that runs on the TPU as a whole."""
    network = _restore_variables(models.TransformerEncoder(), model_dir)

    class Serving(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        @tf.function
        def __call__(self, ids: Any) -> Any:
            return predictions(network({"ids": ids}))

    specs = {"ids": tf.TensorSpec([None, 12], tf.int32)}
    directory = tpuserve.export.export(Serving(), specs, base)
    return ExportedModel(Path(directory), {"serving_default": models.TRANSFORMER.features})


ALL = [
    Kind(
        "V1",
        "the whole model runs on the TPU",
        _estimators(_as_a_whole, *models.ALL),
    ),
    Kind(
        "V2 with BatchConfig",
        "`model_fn_inference_on_tpu` runs the whole model on the TPU in batches of 4 or 8 rows, or "
        "`inference_on_tpu` runs a part of the model there",
        {
            **_estimators(_export_batched, models.TRANSFORMER),
            **_estimators(_batched_part, models.TEXT),
        },
    ),
    Kind(
        "V2 by hand",
        "`model_fn` calls `tpu.rewrite` in a `TPUPartitionedCall` in a batch function",
        _estimators(_by_hand, models.TEXT, models.LSTM),
    ),
    Kind(
        "outside compilation",
        "V1 with host computations: a function between two parts on the TPU, and a function that "
        "computes string classes",
        _estimators(_outside, models.RESIDUAL, models.TEXT),
    ),
    Kind(
        "parsing receiver",
        "V1 whose host part parses tf.Examples",
        _estimators(_parsing, models.RESIDUAL, models.TEXT),
    ),
    Kind(
        "multi-head",
        "V1 with two predict signatures, a classify signature and a regress signature",
        _estimators(_multi_head, models.LSTM),
    ),
    Kind(
        "Keras",
        "`tpuserve.export.export` with a model of Keras 3 or of tf_keras",
        {
            models.RESIDUAL.name: _keras(keras_models.residual, models.RESIDUAL.features),
            models.LSTM.name: _keras(keras_models.lstm, models.LSTM.features),
        },
    ),
    Kind(
        "plain function",
        "`tpuserve.export.export` with a `tf.Module`: the transformer runs on the TPU as a whole, "
        "and the text classifier chooses its placement",
        {
            models.TRANSFORMER.name: _plain_transformer,
            models.TEXT.name: _plain_text,
        },
    ),
]
