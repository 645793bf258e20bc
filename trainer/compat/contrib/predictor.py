"""tf.contrib.predictor: a model as a function from a dict of arrays to a dict of arrays."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, SignatureNotFound
from trainer.compat.contrib_names import missing_names

__all__ = ["Predictor", "SavedModelPredictor", "from_estimator", "from_saved_model"]

v1 = tf.compat.v1

_DEFAULT = "serving_default"


class Predictor:
    """Calls a graph in a session of its own.

    Attributes:
      graph: the model's.
      session: what runs it.
      feed_tensors: name of an input → tensor.
      fetch_tensors: name of an output → tensor.
    """

    def __init__(
        self, graph: Any, session: Any, feed_tensors: dict[str, Any], fetch_tensors: dict[str, Any]
    ) -> None:
        self.graph, self.session = graph, session
        self.feed_tensors, self.fetch_tensors = feed_tensors, fetch_tensors

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Name of an output → array.

        Args:
          input_dict: name of an input → array; inputs that have a default may be left out.

        Raises:
          InvalidSetting: there is no input of a name.
        """
        unknown = [name for name in input_dict if name not in self.feed_tensors]
        if unknown:
            raise InvalidSetting(
                f"the predictor has no input {', '.join(map(repr, unknown))}. It has "
                f"{', '.join(self.feed_tensors)}."
            )
        feeds = {self.feed_tensors[name]: value for name, value in input_dict.items()}
        return dict(self.session.run(self.fetch_tensors, feeds))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__} with feed tensors {self.feed_tensors} and fetch tensors "
            f"{self.fetch_tensors}"
        )


class SavedModelPredictor(Predictor):
    """A predictor of a SavedModel."""


def from_saved_model(
    export_dir: str,
    signature_def_key: str | None = None,
    signature_def: Any = None,
    input_names: Mapping[str, str] | None = None,
    output_names: Mapping[str, str] | None = None,
    tags: str | Sequence[str] | None = None,
    graph: Any = None,
    config: Any = None,
) -> SavedModelPredictor:
    """A predictor of a SavedModel.

    Args:
      export_dir: the directory of one version.
      signature_def_key: "serving_default" by default.
      signature_def: a SignatureDef of the model's graph, in place of one of the model's.
      input_names, output_names: name → name of a tensor, both in place of a signature.
      tags: those of the metagraph, "serve" by default; several with commas between, or a list.
      graph: takes the model in; a new one by default.
      config: a tf.compat.v1.ConfigProto for the session.

    Raises:
      InvalidSetting: several of the ways to name inputs and outputs are given, or half of one.
      SignatureNotFound: the model has no signature of that key.
    """
    if (input_names is None) != (output_names is None):
        raise InvalidSetting(
            f"from_saved_model has input_names={input_names} and output_names={output_names}. "
            f"Give both, or neither."
        )
    ways = {
        "signature_def_key": signature_def_key,
        "signature_def": signature_def,
        "input_names": input_names,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InvalidSetting(f"from_saved_model has {' and '.join(given)}. Give one of them.")
    graph = graph or tf.Graph()
    names = tags.split(",") if isinstance(tags, str) else list(tags or ["serve"])
    with graph.as_default():
        session = v1.Session(config=config)
        model = v1.saved_model.load(session, names, export_dir)
    if input_names is None or output_names is None:
        signature = signature_def or _find_signature(
            model, signature_def_key or _DEFAULT, export_dir
        )
        input_names = {name: info.name for name, info in signature.inputs.items()}
        output_names = {name: info.name for name, info in signature.outputs.items()}

    def tensors(names: Mapping[str, str]) -> dict[str, Any]:
        return {name: graph.get_tensor_by_name(tensor) for name, tensor in names.items()}

    return SavedModelPredictor(graph, session, tensors(input_names), tensors(output_names))


def _find_signature(model: Any, key: str, export_dir: str) -> Any:
    if key not in model.signature_def:
        raise SignatureNotFound(
            f"{export_dir} has no signature {key!r}. Give signature_def_key one of "
            f"{', '.join(sorted(model.signature_def))}."
        )
    return model.signature_def[key]


def from_estimator(
    estimator: Any,
    serving_input_receiver_fn: Callable[[], Any],
    output_key: str | None = None,
    graph: Any = None,
    config: Any = None,
) -> Predictor:
    """A predictor of an estimator's newest checkpoint, on the CPU.

    Args:
      estimator: one of ours.
      serving_input_receiver_fn: says what the predictor's inputs are.
      output_key: which of the spec's export_outputs; "serving_default" by default.
      graph, config: see `from_saved_model`.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = estimator.export_saved_model(directory, serving_input_receiver_fn)
        path = path.decode() if isinstance(path, bytes) else path
        return from_saved_model(path, output_key, graph=graph, config=config)


__getattr__ = missing_names.getattr_for("tf.contrib.predictor", __all__)
