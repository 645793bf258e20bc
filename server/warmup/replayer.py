"""A PredictionLog message, and the run of a model that it asks for.

Source: tensorflow_serving/apis/prediction_log.proto.
"""

from typing import Any

from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from server.dataplane import classify, examples, method_names, multi_inference, regress
from server.dataplane.model_spec import Target
from server.servables.servable import Model
from server.tensors import tensor_proto
from tpuserve.errors import DamagedWarmUp, InvalidInput, UnsupportedModel
from tpuserve.saved_model import signature as signatures


class Records:
    """Runs a model on requests that were logged; the answers are looked at and let go."""

    def __init__(self, check_method_names: bool = False) -> None:
        """Takes whether a signature must be of the method it is asked through."""
        self._check_method_names = check_method_names

    def __call__(self, model: Model, record: bytes) -> None:
        """Runs a model on one record. The name and version in it do not matter.

        Raises:
          DamagedWarmUp: it is no PredictionLog.
          UnsupportedModel: a kind of request that no model is warmed up with.
          TpuserveError: a request that the model refuses.
        """
        log = prediction_log_pb2.PredictionLog()
        try:
            log.ParseFromString(record)
        except DecodeError as error:
            raise DamagedWarmUp(
                f"Failed to parse warmup record: {error}. Please verify your warmup data is in "
                f"TFRecord format."
            ) from error
        kind = log.WhichOneof("log_type")
        if kind == "predict_log":
            self._predict(model, log.predict_log.request)
        elif kind == "classify_log":
            self._classify(model, log.classify_log.request)
        elif kind == "regress_log":
            self._regress(model, log.regress_log.request)
        elif kind == "multi_inference_log":
            self._multi_inference(model, log.multi_inference_log.request)
        else:
            raise UnsupportedModel(f"Unsupported log_type for warmup: {kind or 'none'}")

    def _predict(self, model: Model, request: Any) -> None:
        name = _target(request).effective_signature_name
        signature = signatures.find_signature(model.signatures, name)
        if self._check_method_names:
            method_names.check_predict(signature)
        sent = {alias: tensor_proto.decode(proto, alias) for alias, proto in request.inputs.items()}
        signature.check_outputs(request.output_filter)
        model.run(name, signature.complete(sent), list(request.output_filter) or None)

    def _classify(self, model: Model, request: Any) -> None:
        name = _target(request).effective_signature_name
        signature = examples.find(model.signatures, name)
        wanted = classify.outputs_of(signature, self._check_method_names)
        sent = _examples(request.input)
        fed = {examples.ALIAS: examples.encode(sent)}
        classify.read(model.run(name, fed, wanted), len(sent))

    def _regress(self, model: Model, request: Any) -> None:
        name = _target(request).effective_signature_name
        signature = examples.find(model.signatures, name)
        wanted = regress.outputs_of(signature, self._check_method_names)
        sent = _examples(request.input)
        fed = {examples.ALIAS: examples.encode(sent)}
        regress.read(model.run(name, fed, wanted), len(sent))

    def _multi_inference(self, model: Model, request: Any) -> None:
        tasks = [(_target(each), each.method_name) for each in request.tasks]
        multi_inference.target_of(tasks)
        wanted = multi_inference.plan(tasks, model.signatures, self._check_method_names)
        sent = _examples(request.input)
        outputs = multi_inference.run(model, wanted, examples.encode(sent), None)
        multi_inference.read("", 0, wanted, outputs, len(sent))


def _target(request: Any) -> Target:
    return Target(request.model_spec.name, signature_name=request.model_spec.signature_name)


def _examples(sent: Any) -> list[bytes]:
    kind = sent.WhichOneof("kind")
    if kind == "example_list_with_context":
        # The example wins where both have a feature, as the later one in a message does.
        context = sent.example_list_with_context.context.SerializeToString()
        found = sent.example_list_with_context.examples
        return [context + each.SerializeToString() for each in found]
    if kind != "example_list":
        raise InvalidInput("Input is empty.")
    return [each.SerializeToString() for each in sent.example_list.examples]
