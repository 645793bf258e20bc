"""Runs a model on recorded requests, which are PredictionLog messages.

Source: tensorflow_serving/apis/prediction_log.proto.
"""

from typing import Any

from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from server.admission.cancellation import Cancellation
from server.dataplane import classify, example_method, method_names, multi_inference, regress
from server.dataplane.model_spec import ModelSpec
from server.dataplane.multi_inference import AnyExampleMethod
from server.request import RequestContext
from server.servables.direct_runner import DirectRunner
from server.servables.servable import Model
from server.tensors import tensor_proto
from tpuserve.errors import Code, CodedError, InvalidInput, UnsupportedModel
from tpuserve.saved_model import signature as signatures


class WarmupReplayer:
    """Runs a model on recorded requests. The results are checked and discarded.

    Args:
      check_method_names: whether the method_name of the signature must fit the kind of the
        request, such as Predict.
    """

    def __init__(self, check_method_names: bool = False) -> None:
        self._check_method_names = check_method_names

    def __call__(
        self, model: Model, record: bytes, cancellation: Cancellation | None = None
    ) -> None:
        """Run a model on one recorded request.

        The name and version of the model in the record are ignored.

        Args:
          cancellation: cancels the run; None if it cannot be cancelled.

        Raises:
          UnsupportedModel: the record has a kind of request that warm-up does not support.
        """
        log = prediction_log_pb2.PredictionLog()
        try:
            log.ParseFromString(record)
        except DecodeError as error:
            raise CodedError(
                f"Failed to parse warmup record: {error}. Please verify your warmup data is in "
                f"TFRecord format.",
                Code.DATA_LOSS,
            ) from error
        kind = log.WhichOneof("log_type")
        if kind == "predict_log":
            self._predict(model, log.predict_log.request, cancellation)
        elif kind == "classify_log":
            request = log.classify_log.request
            self._run_on_examples(model, classify.METHOD, request, cancellation)
        elif kind == "regress_log":
            self._run_on_examples(model, regress.METHOD, log.regress_log.request, cancellation)
        elif kind == "multi_inference_log":
            self._multi_inference(model, log.multi_inference_log.request, cancellation)
        else:
            raise UnsupportedModel(f"Unsupported log_type for warmup: {kind or 'none'}")

    def _predict(self, model: Model, request: Any, cancellation: Cancellation | None) -> None:
        name = _model_spec(request).effective_signature_name
        signature = signatures.find_signature(model.signatures, name)
        if self._check_method_names:
            method_names.check_predict(signature)
        inputs = {
            alias: tensor_proto.tensor_proto_to_array(proto, alias)
            for alias, proto in request.inputs.items()
        }
        signature.check_outputs(request.output_filter)
        output_names = list(request.output_filter) or None
        model.run(name, signature.complete(inputs), output_names, cancellation=cancellation)

    def _run_on_examples(
        self,
        model: Model,
        method: AnyExampleMethod,
        request: Any,
        cancellation: Cancellation | None,
    ) -> None:
        name = _model_spec(request).effective_signature_name
        outputs = method.find_outputs(model.signatures, name, self._check_method_names)
        serialized = _examples(request.input)
        inputs = {example_method.ALIAS: example_method.encode(serialized)}
        results = model.run(name, inputs, outputs, cancellation=cancellation)
        method.read_answer("", 0, name, results, len(serialized))

    def _multi_inference(
        self, model: Model, request: Any, cancellation: Cancellation | None
    ) -> None:
        tasks = [(_model_spec(task), task.method_name) for task in request.tasks]
        multi_inference.model_spec_of_request(tasks)
        plan = multi_inference.make_plan(tasks, model.signatures, self._check_method_names)
        serialized = _examples(request.input)
        context = RequestContext(cancellation=cancellation or Cancellation())
        inputs = {example_method.ALIAS: example_method.encode(serialized)}
        outputs = DirectRunner(model).start_multi(context, plan.outputs, inputs)
        multi_inference.read_answers("", 0, plan, outputs, len(serialized))


def _model_spec(request: Any) -> ModelSpec:
    return ModelSpec(request.model_spec.name, signature_name=request.model_spec.signature_name)


def _examples(message: Any) -> list[bytes]:
    """Return the serialised tf.train.Examples of TensorFlow Serving's message Input."""
    kind = message.WhichOneof("kind")
    if kind == "example_list_with_context":
        # Put the bytes of the context before the bytes of each example: protobuf parsers merge
        # concatenated messages.
        context = message.example_list_with_context.context.SerializeToString()
        examples_of_list = message.example_list_with_context.examples
        return [context + example.SerializeToString() for example in examples_of_list]
    if kind != "example_list":
        raise InvalidInput("Input is empty.")
    return [example.SerializeToString() for example in message.example_list.examples]
