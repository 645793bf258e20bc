"""Examples are classified and regressed; invalid requests get TensorFlow Serving's error texts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from server.dataplane import Classification, ModelSpec, Regression
from tests.server.dataplane.models import (
    CLASSES,
    EXAMPLES,
    ExamplesModel,
    classify,
    regress,
    serve,
    strings,
)
from tests.server.fakes import spec
from tpuserve.errors import InvalidInput, TpuserveError
from tpuserve.saved_model.signature import Signature

SENT = [b"ab", b"abcd"]
M = ModelSpec("m")
REGRESS = ModelSpec("m", signature_name="regress")


def with_signature(signature: Signature) -> ExamplesModel:
    model = ExamplesModel()
    model.signatures = {"serving_default": signature, "regress": signature}
    return model


def test_examples_are_classified_row_by_row() -> None:
    answer = serve(ExamplesModel()).classify(M, SENT)
    assert (answer.model, answer.version, answer.signature_name) == ("m", 3, "serving_default")
    assert answer.classes is not None
    assert answer.scores is not None
    assert answer.classes.tolist() == [[b"short", b"long"]] * 2
    assert answer.scores.tolist() == [[0.5, 0.5], [0.25, 0.75]]


def test_signature_may_give_scores_alone() -> None:
    answer = serve(ExamplesModel()).classify(ModelSpec("m", signature_name="scores"), SENT)
    assert answer.classes is None
    assert answer.scores is not None


@pytest.mark.parametrize("name", ["regress", "column"])
def test_examples_are_regressed_to_one_value_each(name: str) -> None:
    answer = serve(ExamplesModel()).regress(ModelSpec("m", signature_name=name), SENT)
    assert (answer.signature_name, answer.values.tolist()) == (name, [2, 4])


@pytest.mark.parametrize("target", [M, REGRESS])
def test_no_example_is_refused(target: ModelSpec) -> None:
    dataplane = serve(ExamplesModel())
    ask: Any = dataplane.regress if target.signature_name else dataplane.classify
    with pytest.raises(InvalidInput, match=r"^Input is empty\.$"):
        ask(target, [])


def test_unknown_signature_is_refused_otherwise_than_by_predict() -> None:
    dataplane = serve(ExamplesModel())
    for ask in (dataplane.classify, dataplane.regress):
        with pytest.raises(InvalidInput, match="^No signature was found with the name: S$"):
            ask(ModelSpec("m", signature_name="S"), SENT)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inputs": {}}, "Expected one input Tensor."),
        ({"inputs": {**EXAMPLES, "x": spec("string")}}, "Expected one input Tensor."),
        ({"outputs": {}}, "Expected one or two output Tensors, found 0"),
        (
            {"outputs": {**CLASSES, "y": spec("float32")}},
            "Expected one or two output Tensors, found 3",
        ),
        (
            {"inputs": {"x": spec("string")}},
            "No classification inputs found in SignatureDef: inputs: {x} outputs: {classes, "
            "scores} method_name: 'tensorflow/serving/classify'",
        ),
        (
            {"outputs": {"y": spec("float32")}},
            'Expected classification signature outputs to contain at least one of "classes" or '
            '"scores". Signature was: inputs: {inputs} outputs: {y} '
            "method_name: 'tensorflow/serving/classify'",
        ),
    ],
)
def test_signature_that_does_not_classify_is_refused(changes: Mapping[str, Any], text: str) -> None:
    dataplane = serve(with_signature(dataclasses.replace(classify, **changes)))
    with pytest.raises(InvalidInput) as caught:
        dataplane.classify(M, SENT)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"inputs": {}}, "Expected one input Tensor."),
        ({"outputs": {}}, "Expected one output Tensor."),
        ({"outputs": CLASSES}, "Expected one output Tensor."),
        ({"inputs": {"x": spec("string")}}, "No regression inputs found in SignatureDef: "),
        ({"outputs": {"y": spec("float32")}}, "No regression outputs found in SignatureDef: "),
    ],
)
def test_signature_that_does_not_regress_is_refused(changes: Mapping[str, Any], text: str) -> None:
    dataplane = serve(with_signature(dataclasses.replace(regress, **changes)))
    with pytest.raises(InvalidInput) as caught:
        dataplane.regress(REGRESS, SENT)
    assert str(caught.value).startswith(text)


LABELS = strings([b"a", b"b"], [b"c", b"d"])
SCORES = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (
            {"classes": LABELS[0]},
            "Expected Tensor shape: [batch_size num_classes] but got [2]",
        ),
        (
            {"scores": SCORES[None]},
            "Expected Tensor shape: [batch_size num_classes] but got [1,2,2]",
        ),
        ({"classes": SCORES}, "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
        ({"scores": LABELS}, "Expected scores Tensor of DT_FLOAT. Got: DT_STRING"),
        (
            {"scores": SCORES.astype(np.float64)},
            "Expected scores Tensor of DT_FLOAT. Got: DT_DOUBLE",
        ),
        ({"classes": LABELS[:1]}, "Expected classes output batch size of 2. Got: 1"),
        ({"scores": SCORES[:1]}, "Expected scores output batch size of 2. Got: 1"),
        (
            {"scores": SCORES[:, :1]},
            "Tensors class and score should match in dim_size(1). Got 2 vs. 1",
        ),
    ],
)
def test_outputs_that_are_no_classes_are_refused(outputs: dict[str, Any], text: str) -> None:
    model = ExamplesModel()
    model.outputs = outputs
    with pytest.raises(InvalidInput) as caught:
        serve(model).classify(M, SENT)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            np.ones((2, 2), np.float32),
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            "[2,2]",
        ),
        (
            np.float32(1).reshape(()),
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got []",
        ),
        (np.ones(3, np.float32), "Input batch size did not match output batch size: 2 vs. 3"),
        (np.ones(2, np.int64), "Expected output Tensor of DT_FLOAT.  Got: DT_INT64"),
    ],
)
def test_outputs_that_are_no_values_are_refused(values: Any, text: str) -> None:
    model = ExamplesModel()
    model.outputs = {"outputs": values}
    with pytest.raises(InvalidInput) as caught:
        serve(model).regress(REGRESS, SENT)
    assert str(caught.value) == text


def test_several_signatures_answer_on_the_same_examples() -> None:
    tasks = [
        (REGRESS, "tensorflow/serving/regress"),
        (ModelSpec("m"), "tensorflow/serving/classify"),
    ]
    first, second = serve(ExamplesModel()).multi_inference(tasks, SENT)
    assert isinstance(first, Regression)
    assert isinstance(second, Classification)
    assert first.values.tolist() == [2, 4]
    assert (second.version, second.signature_name) == (3, "serving_default")


def test_model_that_can_run_several_signatures_at_once_runs_once() -> None:
    class Together(ExamplesModel):
        def run_multi(
            self,
            output_names: Mapping[str, Any],
            inputs: Mapping[str, Any],
            *,
            timeout_ms: float | None = None,
            cancellation: Any = None,
        ) -> dict[str, dict[str, Any]]:
            self.runs.append(",".join(output_names))
            outputs = super()._run("", inputs)
            return {
                name: {alias: outputs[alias] for alias in output_names[name]}
                for name in output_names
            }

    model = Together()
    tasks = [(M, "tensorflow/serving/classify"), (REGRESS, "tensorflow/serving/regress")]
    assert len(serve(model).multi_inference(tasks, SENT)) == 2
    assert model.runs == ["serving_default,regress", ""]


CLASSIFY = "tensorflow/serving/classify"


@pytest.mark.parametrize(
    ("tasks", "code", "text"),
    [
        ([], "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ([(ModelSpec(""), CLASSIFY)], "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (
            [(M, CLASSIFY), (ModelSpec("n"), CLASSIFY)],
            "INVALID_ARGUMENT",
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            [(M, CLASSIFY), (ModelSpec("m", signature_name="serving_default"), CLASSIFY)],
            "INVALID_ARGUMENT",
            "Duplicate evaluation of signature: serving_default",
        ),
        (
            [(ModelSpec("m", signature_name="S"), CLASSIFY)],
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: S",
        ),
        (
            [(M, "tensorflow/serving/predict")],
            "UNIMPLEMENTED",
            "Unsupported signature method_name: tensorflow/serving/predict",
        ),
    ],
)
def test_tasks_that_do_not_go_together_are_refused(tasks: Any, code: str, text: str) -> None:
    with pytest.raises(TpuserveError) as caught:
        serve(ExamplesModel()).multi_inference(tasks, SENT)
    assert (caught.value.code.name, str(caught.value)) == (code, text)


def test_version_of_the_first_task_holds_for_all() -> None:
    tasks = [(M, CLASSIFY), (ModelSpec("m", 99, "regress"), "tensorflow/serving/regress")]
    assert {result.version for result in serve(ExamplesModel()).multi_inference(tasks, SENT)} == {3}
