"""The function `tpuserve.export.export`: writes a model as a new version directory."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tpuserve import tags
from tpuserve.errors import ExportError, InvalidType
from tpuserve.export import debug_info, large_constants, signature_parity
from tpuserve.export import warm_up as warm_up_file
from tpuserve.export.files import proto_size
from tpuserve.export.files.atomic_directory import AtomicDirectory
from tpuserve.export.functional import placement, resource_holder, saved_model
from tpuserve.export.functional.signatures import ExportSignature, read_signatures
from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.export.warm_up import WarmUp, normalize_warm_up
from tpuserve.tags import TagSet

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
        proto_size.check_proto_size(function.graph for function in exported)
        owners = [model, *(signature.model.function for signature in export_signatures)]
        root = resource_holder.build_resource_holder(exported, owners)
    lines = {
        node: line
        for function in exported
        for node, line in debug_info.find_source_lines(function.graph).items()
    }
    with target:
        meta_graphs = saved_model.write_saved_model(root, functions, target.path, as_text=as_text)
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
