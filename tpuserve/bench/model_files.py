"""Reads the files of a measured model: its metagraphs, and inputs that its graph accepts.

TensorFlow is imported when a graph is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpuserve import tags
from tpuserve.bench.inputs import NUM_RANDOM, RequestInputs
from tpuserve.errors import SignatureNotFound
from tpuserve.saved_model import metagraph, proto_file
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature
from tpuserve.tags import TagSet


@dataclass(frozen=True)
class ModelFiles:
    """The model version that a server serves from a base path, and its signature to measure.

    Attributes:
      meta_graph_def: TensorFlow's MetaGraphDef of one of these metagraphs: the one with the tag
        set {serve} if there is one, else the first.
    """

    base_path: Path
    directory: Path
    signature_name: str
    signature: Signature
    tag_sets: frozenset[TagSet]
    meta_graph_def: Any

    @property
    def model_name(self) -> str:
        """The name under which the model is served: the last component of its base path."""
        return model_name(self.base_path)


def model_name(base_path: Path) -> str:
    """Return the name under which the model of a base path is served."""
    return base_path.resolve().name or "model"


def read_model(base_path: Path, signature_name: str) -> ModelFiles:
    """Read the newest version below a base path.

    Args:
      signature_name: the signature to measure; "" for "serving_default".
    """
    from tpuserve.saved_model.saved_model_message import meta_graph_defs, read_saved_model_message

    directory = _find_version(base_path)
    name = signature_name or DEFAULT_SIGNATURE
    described = metagraph.read_metagraphs(directory)
    signatures = {
        metagraph.tags: metagraph.signatures[name]
        for metagraph in described
        if name in metagraph.signatures
    }
    if not signatures:
        names = sorted({name for metagraph in described for name in metagraph.signatures})
        raise SignatureNotFound(
            f"no signature {name!r} in {directory}; found {', '.join(names) or 'none'}. Name one "
            f"of those with --signature."
        )
    selected = tags.SERVE if tags.SERVE in signatures else next(iter(signatures))
    return ModelFiles(
        base_path,
        directory,
        name,
        signatures[selected],
        frozenset(signatures),
        meta_graph_defs(read_saved_model_message(directory))[selected],
    )


def generate_requests(
    model: ModelFiles, batch_size: int, shapes: Mapping[str, tuple[int, ...]]
) -> list[RequestInputs]:
    """Generate inputs that the graph accepts, such as tf.Examples with the features that it parses.

    Args:
      shapes: alias → shape, for inputs whose shape the signature does not say.

    Raises:
      InvalidInput: values for an input cannot be generated, or `shapes` names an input that the
        signature does not have.
    """
    from tpuserve import samples

    graph, name = model.meta_graph_def, model.signature_name
    if not samples.has_open_batch_size(graph, name):
        fixed = [spec.shape[0] for spec in model.signature.inputs.values() if spec.shape]
        batch_size = fixed[0] or batch_size if fixed else batch_size
    return [
        RequestInputs(samples.generate_inputs(graph, name, batch_size, seed=seed, shapes=shapes))
        for seed in range(NUM_RANDOM)
    ]


def _find_version(base_path: Path) -> Path:
    """Return the directory with the largest number as its name; the base path if there is none."""
    try:
        names = [path.name for path in base_path.iterdir() if path.is_dir()]
    except OSError as error:
        raise proto_file.unreadable_error(base_path, error) from error
    # Compare the numbers as texts, first by their lengths: Python refuses to convert a text of
    # several thousand digits to an int.
    versions = {
        (len(digits), digits): name
        for name in names
        if name.isascii() and name.isdecimal()
        for digits in [name.lstrip("0")]
    }
    return base_path / versions[max(versions)] if versions else base_path
