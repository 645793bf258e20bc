"""SavedModel files made by hand, for tests that need no TensorFlow."""

from pathlib import Path

from tpuserve.proto import saved_model_pb2 as pb


def half_plus_two() -> pb.SavedModel:
    """y = x / 2 + 2: three ops on the CPU; three on the TPU, with one more on its host."""
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


def write(model: pb.SavedModel, directory: Path) -> Path:
    """Writes saved_model.pb and five bytes of variables; returns the directory."""
    (directory / "variables").mkdir(parents=True)
    (directory / "variables" / "variables.index").write_bytes(b"12345")
    (directory / "saved_model.pb").write_bytes(model.SerializeToString())
    return directory


def _metagraph(model: pb.SavedModel, tags: list[str]) -> pb.MetaGraphDef:
    metagraph = model.meta_graphs.add()
    metagraph.meta_info_def.tags.extend(tags)
    metagraph.meta_info_def.tensorflow_version = "2.21.0"
    signature = metagraph.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for tensors, alias in ((signature.inputs, "x"), (signature.outputs, "y")):
        tensors[alias].name = f"{alias}:0"
        tensors[alias].dtype = 1
        tensors[alias].tensor_shape.dim.add().size = -1
        tensors[alias].tensor_shape.dim.add().size = 1
    return metagraph
