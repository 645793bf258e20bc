"""The function `tpuserve.export.export`: writes a model as a new version directory."""

import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeAlias

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from tpuserve import tags, tensorflow_internals
from tpuserve.errors import ExportError, InvalidType
from tpuserve.export import debug_info, large_constants, saved_model_writer, signature_parity
from tpuserve.export import warm_up as warm_up_file
from tpuserve.export.atomic_directory import AtomicDirectory
from tpuserve.export.function_walk import walk_graphs
from tpuserve.export.functional import placement
from tpuserve.export.functional.function import python_body
from tpuserve.export.functional.placement import ExportSignature, read_signatures
from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.export.warm_up import WarmUp, normalize_warm_up
from tpuserve.saved_model.signature import INIT_SIGNATURE
from tpuserve.tags import TagSet
from tpuserve.tensorflow_internals import (
    CapturableResource,
    Trackable,
    fingerprinting_utils,
    saved_model_save,
)


def build_resource_holder(functions: Iterable[Any], owners: Iterable[Any]) -> Any:
    """Build a trackable object that refers to all variables and tables that functions use.

    TensorFlow saves the variables and tables of this object.
    """
    functions = list(functions)
    variables = {id(variable.handle): variable for variable in _used_variables(functions)}
    captured_ids = [
        id(tensor)
        for function in functions
        for tensor, _ in function.graph.captures
        if tensor.dtype == tf.resource
    ]
    # A dict keeps the order of the captures, and a set does not. Every export of a model thereby
    # stores its resources in the same order.
    missing = dict.fromkeys(handle for handle in captured_ids if handle not in variables)
    resources = {}
    if missing:
        by_handle = {id(resource.resource_handle): resource for resource in _find_resources(owners)}
        resources = {handle: by_handle[handle] for handle in missing if handle in by_handle}
    if missing.keys() - resources.keys():
        raise ExportError(
            "the model uses a table or another resource that no owner was found for, so it would "
            "be missing from the export. Make it an attribute of a tf.Module, and export that "
            "module, or a function that refers to it."
        )
    root = tf.__internal__.tracking.AutoTrackable()
    root.variables = list(variables.values())
    root.resources = list(resources.values())
    return root


def _used_variables(functions: Iterable[Any]) -> Iterator[Any]:
    for function in functions:
        for graph in walk_graphs(function.graph):
            yield from graph.variables


def _find_resources(owners: Iterable[Any]) -> Iterator[Any]:
    """Yield the tables and other CapturableResources that `owners` refer to, even indirectly."""
    visited: dict[int, Any] = {}
    pending = list(owners)
    while pending:
        owner = pending.pop()
        if id(owner) in visited:
            continue
        # Keep a reference to the object in `visited`, so that Python does not reuse its id.
        visited[id(owner)] = owner
        if isinstance(owner, CapturableResource):
            yield owner
        pending += _referenced_objects(owner)


def _referenced_objects(owner: Any) -> Iterator[Any]:
    """Yield the objects that an object refers to directly, to be searched for tables."""
    if isinstance(owner, Trackable):
        yield from tensorflow_internals.get_trackable_children(owner).values()
    if isinstance(owner, tf.types.experimental.PolymorphicFunction):
        yield python_body(owner)
    elif isinstance(owner, MethodType):
        yield from (owner.__self__, owner.__func__)
    elif isinstance(owner, functools.partial):
        yield from (owner.func, *owner.args, *owner.keywords.values())
    elif isinstance(owner, FunctionType):
        yield from _objects_of_function(owner)
    elif isinstance(owner, (list, tuple)):
        yield from owner
    elif isinstance(owner, dict):
        yield from owner.values()
    elif callable(owner) and not isinstance(owner, (type, Trackable)):
        yield from getattr(owner, "__dict__", {}).values()


def _objects_of_function(function: FunctionType) -> Iterator[Any]:
    """Yield the objects that a Python function refers to: in its closure, defaults and globals."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # Skip an empty cell of the closure: its variable is not set yet.
            continue
    yield from function.__defaults__ or ()
    for name in _names_in_code(function.__code__):
        value = function.__globals__.get(name)
        # Do not search functions from other modules: tables are expected in the user's own module.
        if isinstance(value, FunctionType) and value.__globals__ is not function.__globals__:
            continue
        yield value


def _names_in_code(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that a code object and nested ones use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in_code(constant)


def write_saved_model(
    root: Any,
    functions: Mapping[TagSet, Mapping[str, Any]],
    directory: str,
    *,
    as_text: bool = False,
) -> list[Any]:
    """Write a SavedModel with several metagraphs; return the MetaGraphDefs.

    Args:
      functions: Tag set → signature name → concrete function. For the first tag set, TensorFlow
        saves a metagraph and the variables.
    """
    # Do not save custom gradients: a served model is not trained, and TensorFlow cannot trace a
    # gradient function for a TPU computation.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    (first_tags, first_functions), *others = functions.items()
    try:
        saved_model_save.save_and_return_nodes(root, directory, dict(first_functions), options)
        path = tf.io.gfile.join(directory, "saved_model.pb")
        saved_model = saved_model_pb2.SavedModel.FromString(_read_bytes(path))
        _set_tags(saved_model.meta_graphs[0], first_tags)
        for tags, tag_functions in others:
            meta_graph = _build_meta_graph(root, tag_functions, options)
            # Remove the object graph: loaders use it only if a SavedModel has a single metagraph.
            meta_graph.ClearField("object_graph_def")
            _set_tags(meta_graph, tags)
            saved_model.meta_graphs.append(meta_graph)
    except (AssertionError, ValueError) as error:
        raise ExportError(f"TensorFlow cannot save the model: {error}") from error
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(saved_model.SerializeToString(deterministic=True))
    fingerprinting_utils.write_fingerprint(directory)
    if as_text:
        with tf.io.gfile.GFile(f"{path}txt", "w") as file:
            file.write(text_format.MessageToString(saved_model))
        tf.io.gfile.remove(path)
    return list(saved_model.meta_graphs)


def _build_meta_graph(root: Any, functions: Mapping[str, Any], options: Any) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "meta_graph.pb")
        saved_model_save.export_meta_graph(root, path, dict(functions), options)
        return meta_graph_pb2.MetaGraphDef.FromString(_read_bytes(path))


def _read_bytes(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return bytes(file.read())


def _set_tags(meta_graph: Any, tags: TagSet) -> None:
    """Set the tags of a MetaGraphDef, and remove the init op from its signatures."""
    meta_graph.meta_info_def.ClearField("tags")
    meta_graph.meta_info_def.tags.extend(sorted(tags))
    # Remove the signature of the init op, which fills the tables.
    meta_graph.signature_def.pop(INIT_SIGNATURE, None)


Specs: TypeAlias = Mapping[str, tf.TensorSpec]
Signatures: TypeAlias = Specs | Mapping[str, Specs | tuple[Callable[..., Any], Specs]]


def export(
    model: Any,
    signatures: Signatures | str | os.PathLike[str] | None = None,
    export_dir_base: str | os.PathLike[str] = "",
    *,
    batch_config: BatchConfig | None = None,
    to_cpu: bool = True,
    to_tpu: bool = True,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    warm_up: WarmUp | bool | None = None,
) -> str:
    """Write a model as a SavedModel with a CPU and a TPU metagraph; return its directory.

    Both metagraphs have the same signatures and share one set of variables. Weights should be
    tf.Variables, because each metagraph stores its own copy of every constant. Float and 8-bit
    constants of 1 MiB or more become variables, except those in a tf.function that the model calls.
    The metagraph {serve} holds the model unchanged. In the metagraph {serve, tpu} the whole
    function runs on the TPU, except for parts that it wraps in
    `tf.compat.v1.tpu.outside_compilation`.

    A function with a parameter `use_tpu` itself chooses which of its ops run on the TPU: it calls
    `tpuserve.export.on_tpu` or `tpuserve.export.inference_on_tpu` for these. Its other ops, such as
    the lookup in a vocabulary, run on the host. `use_tpu` is True for the TPU metagraph and False
    for the CPU metagraph.

    The name of an input or output in a signature is called its alias. A function is called with one
    keyword argument for each input, whose name is the alias. It returns a dict of alias → tensor,
    or a single tensor, whose alias is "output". A Keras model is called for inference, with its
    inputs in the structure that it declares. The names of its outputs become the aliases.

    Example:
      tpuserve.export.export(
          lambda x: {"y": x * half + two}, {"x": tf.TensorSpec([None], tf.float32)}, "/models/half"
      )

    Args:
      model: A function, tf.function or concrete function; a tf.Module or other object with
        `__call__`; or a Keras model or layer of tf_keras or Keras 3. If each signature has its own
        function: an object that owns the tables and other resources of the functions, or None.
      signatures: Alias → tf.TensorSpec, for the single signature serving_default; or signature name
        → such a mapping; or signature name → (function, such a mapping). With None, the inputs are
        those of a Keras model, or of a tf.function with an input signature.
      export_dir_base: Directory of the version directories; created if missing.
      batch_config: How the TPU metagraph batches requests before the TPU. The first dimension of
        all inputs and outputs must be the batch. None means no batching in the graph.
      assets_extra: Path below assets.extra/ → file to copy there.
      as_text: Write saved_model.pbtxt instead of saved_model.pb.
      warm_up: The requests that a server runs before the model is available; True for one request
        per signature and allowed batch size; None or False for no warm-up file.

    Returns:
      The version directory, a child of the base directory. Its name is a Unix time in seconds.

    Raises:
      ExportError: The model cannot be exported: it is not callable, returns something that is not
        a tensor, uses a table or resource that was not found in any object, has strings on the TPU,
        or has more constants than fit into a file; or the directory cannot be written.
      InvalidSetting, InvalidType: An argument has an invalid value or type.
    """
    if isinstance(signatures, (str, bytes, os.PathLike)) and not export_dir_base:
        export_dir_base = os.fsdecode(signatures)
        signatures = None
    _check_arguments(batch_config, to_cpu=to_cpu, to_tpu=to_tpu)
    warm_up_requests = normalize_warm_up(warm_up)
    target = AtomicDirectory(
        export_dir_base, assets_extra=assets_extra, has_warm_up_file=warm_up_requests is not None
    )
    export_signatures = read_signatures(model, signatures)
    with large_constants.lifting():
        functions = _trace_functions(export_signatures, batch_config, to_cpu=to_cpu, to_tpu=to_tpu)
        exported = [function for by_name in functions.values() for function in by_name.values()]
        saved_model_writer.check_proto_size(function.graph for function in exported)
        owners = [model, *(signature.model.function for signature in export_signatures)]
        root = build_resource_holder(exported, owners)
    lines = {
        node: line
        for function in exported
        for node, line in debug_info.find_source_lines(function.graph).items()
    }
    with target:
        meta_graphs = write_saved_model(root, functions, target.path, as_text=as_text)
        if len(meta_graphs) == 2:
            cpu, tpu = (meta_graph.signature_def for meta_graph in meta_graphs)
            signature_parity.check_same_signatures(cpu, tpu)
        if warm_up_requests is not None:
            warm_up_file.write_warm_up_file(target.path, meta_graphs, warm_up_requests)
        debug_info.write_debug_info(target.path, lines)
    return target.directory


def _trace_functions(
    signatures: Sequence[ExportSignature],
    batch_config: BatchConfig | None,
    *,
    to_cpu: bool,
    to_tpu: bool,
) -> dict[TagSet, dict[str, Any]]:
    # Trace the CPU functions even if `to_cpu` is False: a function that creates its variables in
    # its first call must create them outside of any TPU computation.
    cpu = {signature.name: placement.trace_for_cpu(signature) for signature in signatures}
    functions = {tags.SERVE: cpu} if to_cpu else {}
    if to_tpu:
        functions[tags.SERVE_TPU] = {
            signature.name: placement.trace_for_tpu(signature, batch_config)
            for signature in signatures
        }
    return functions


def _check_arguments(batch_config: Any, *, to_cpu: bool, to_tpu: bool) -> None:
    if batch_config is not None and not isinstance(batch_config, BatchConfig):
        raise InvalidType(f"batch_config is {batch_config!r}. Give a BatchConfig, or None.")
    if not (to_cpu or to_tpu):
        raise ExportError(
            "to_cpu and to_tpu are both False, so there is nothing to write. Set one of them."
        )
    if not tf.executing_eagerly():
        raise ExportError(
            "TensorFlow does not execute eagerly: this call is inside of a tf.Graph or a "
            "tf.function, or TensorFlow 2 behavior is disabled. Call export outside of them."
        )
