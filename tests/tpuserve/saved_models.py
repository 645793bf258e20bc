"""Provides SavedModels without TensorFlow: messages made by hand, and a file in data/words."""

import shutil
import struct
from pathlib import Path

import google_crc32c

from tpuserve.proto import saved_model_pb2 as pb

# A real export with a batch function, a TPU computation in it, a vocabulary and a warm-up file;
# data/make_words.py wrote it.
WORDS = Path(__file__).parent / "data" / "words"


def half_plus_two() -> pb.SavedModel:
    """Return a model of y = x / 2 + 2 with two metagraphs.

    {serve} has three ops. In {serve, tpu}, the TPU computation has three ops on the TPU and one
    outside-compiled op on the host.
    """
    model = pb.SavedModel(saved_model_schema_version=1)
    cpu = _metagraph(model, ["serve"])
    for op in ("Placeholder", "Mul", "Add"):
        cpu.graph_def.node.add(name=op.lower(), op=op)
    tpu = _metagraph(model, ["serve", "tpu"])
    tpu.graph_def.node.add(name="x", op="Placeholder")
    call = tpu.graph_def.node.add(name="call", op="TPUPartitionedCall")
    call.attr["f"].func.name = "computation"
    body = tpu.graph_def.library.function.add()
    body.signature.name = "computation"
    for op in ("Mul", "Mul", "Add"):
        body.node_def.add(name=op.lower(), op=op)
    body.node_def.add(name="print", op="AsString").attr["_xla_outside_compilation"].s = b"0"
    return model


def write_saved_model(model: pb.SavedModel, directory: Path) -> Path:
    """Write saved_model.pb and five bytes of variables; return the directory."""
    (directory / "variables").mkdir(parents=True)
    (directory / "variables" / "variables.index").write_bytes(b"12345")
    (directory / "saved_model.pb").write_bytes(model.SerializeToString())
    return directory


def copy_of_words(directory: Path) -> Path:
    """Copy the export `WORDS`, so that a test can damage it; return the copy's directory."""
    return shutil.copytree(WORDS, directory)


def saved_model_with_graph(graph: pb.GraphDef) -> pb.SavedModel:
    """Return a SavedModel with one metagraph that has no signatures."""
    model = pb.SavedModel(saved_model_schema_version=1)
    model.meta_graphs.add(graph_def=graph).meta_info_def.tags.append("serve")
    return model


def add_function(graph: pb.GraphDef, name: str, *ops: str) -> pb.FunctionDef:
    """Add a function with one node for each op; the name of a node is its position."""
    function = graph.library.function.add()
    function.signature.name = name
    for position, op in enumerate(ops):
        function.node_def.add(name=str(position), op=op)
    return function


def tf_records(*contents: bytes) -> bytes:
    """Return the content of a TFRecord file with these records."""
    return b"".join(
        length + _masked_crc(length) + content + _masked_crc(content)
        for content in contents
        for length in (struct.pack("<Q", len(content)),)
    )


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    rotated = crc >> 15 | crc << 17 & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


def _metagraph(model: pb.SavedModel, tags: list[str]) -> pb.MetaGraphDef:
    metagraph = model.meta_graphs.add()
    metagraph.meta_info_def.tags.extend(tags)
    metagraph.meta_info_def.tensorflow_version = "2.21.0"
    signature = metagraph.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for tensors, alias in ((signature.inputs, "x"), (signature.outputs, "y")):
        tensors[alias].name = f"{alias}:0"
        tensors[alias].dtype = pb.DT_FLOAT
        tensors[alias].tensor_shape.dim.add().size = -1
        tensors[alias].tensor_shape.dim.add().size = 1
    return metagraph
