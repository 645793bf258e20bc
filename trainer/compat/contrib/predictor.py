"""tf.contrib.predictor: predictors, objects that run a model as a function of named arrays."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidSetting, SignatureNotFound
from trainer.compat import contrib_missing_names

__all__ = ["Predictor", "SavedModelPredictor", "from_estimator", "from_saved_model"]

v1 = tf.compat.v1

_DEFAULT = "serving_default"


class Predictor:
    """Runs the graph of a model in a session of its own; calling the object runs the model."""

    def __init__(
        self, graph: Any, session: Any, feed_tensors: dict[str, Any], fetch_tensors: dict[str, Any]
    ) -> None:
        self.graph, self.session = graph, session
        self.feed_tensors, self.fetch_tensors = feed_tensors, fetch_tensors

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model.

        Args:
          input_dict: name of an input → array; inputs with a default value may be left out.
        """
        unknown = [name for name in input_dict if name not in self.feed_tensors]
        if unknown:
            raise InvalidSetting(
                f"The predictor has no input {', '.join(map(repr, unknown))}. Its inputs are "
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
    """A Predictor whose graph is loaded from a SavedModel."""


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
    """Load a SavedModel as a predictor.

    Args:
      input_names: name of an input → name of a tensor. Set input_names and output_names to use
        them instead of a signature.
      tags: tags of the metagraph, as a list or separated by commas; "serve" by default.
      graph: the tf.Graph to load the model into; a new graph by default.
    """
    if (input_names is None) != (output_names is None):
        raise InvalidSetting(
            f"from_saved_model got input_names={input_names} and output_names={output_names}. "
            f"Set both, or neither."
        )
    signature_arguments = {
        "signature_def_key": signature_def_key,
        "signature_def": signature_def,
        "input_names": input_names,
    }
    set_names = [name for name, value in signature_arguments.items() if value is not None]
    if len(set_names) > 1:
        raise InvalidSetting(
            f"from_saved_model got {' and '.join(set_names)}. Set only one of them."
        )
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

    def find_tensors(names: Mapping[str, str]) -> dict[str, Any]:
        return {name: graph.get_tensor_by_name(tensor) for name, tensor in names.items()}

    return SavedModelPredictor(
        graph, session, find_tensors(input_names), find_tensors(output_names)
    )


def _find_signature(model: Any, key: str, export_dir: str) -> Any:
    if key not in model.signature_def:
        raise SignatureNotFound(
            f"{export_dir} has no signature {key!r}. Set signature_def_key to one of "
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
    """Export an estimator's newest checkpoint and load it as a predictor that runs on the CPU.

    Args:
      graph: the tf.Graph to load the model into; a new graph by default.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = estimator.export_saved_model(directory, serving_input_receiver_fn)
        path = path.decode() if isinstance(path, bytes) else path
        return from_saved_model(path, output_key, graph=graph, config=config)


__getattr__ = contrib_missing_names.getattr_for("tf.contrib.predictor", __all__)
