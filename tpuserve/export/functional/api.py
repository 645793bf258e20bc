"""One call from a model to a version directory."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from tpuserve import tags
from tpuserve.errors import ExportError, InvalidType
from tpuserve.export import debug_info, signature_parity
from tpuserve.export import warm_up as warm_up_file
from tpuserve.export.files import proto_size
from tpuserve.export.files.atomic_directory import AtomicDirectory
from tpuserve.export.functional import placement, resource_holder, saved_model
from tpuserve.export.functional import signatures as entry_points
from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.export.warm_up import WarmUp, normalize_warm_up

Specs: TypeAlias = Mapping[str, tf.TensorSpec]
Signatures: TypeAlias = Specs | Mapping[str, Specs | tuple[Callable[..., Any], Specs]]


def export(
    model: Any,
    signatures: Signatures | None = None,
    export_dir_base: str | os.PathLike[str] = "",
    *,
    batch_config: BatchConfig | None = None,
    to_cpu: bool = True,
    to_tpu: bool = True,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    warm_up: WarmUp | bool | None = None,
) -> str:
    """Writes a model as a SavedModel with a CPU and a TPU metagraph; returns its directory.

    Both metagraphs have the same signatures and one set of variables. Weights belong into
    tf.Variables: a constant is written with each metagraph. In the one tagged {serve}
    the model is as it is. In the one tagged {serve, tpu} the whole function runs on the TPU,
    what it wraps in `tf.compat.v1.tpu.outside_compilation` excepted. A function that has a
    parameter `use_tpu` is called with True for the TPU metagraph and with False for the other,
    and puts itself on the TPU with `tpuserve.export.on_tpu` or `inference_on_tpu`: so a
    vocabulary stays on the host.

    A function is called with one keyword per input, by alias. It returns a tensor, which gets
    the alias "output", or a dict of alias → tensor. A Keras model is called as its inputs are
    structured, for inference; its outputs have the model's names.

    Example:
      tpuserve.export.export(
          lambda x: {"y": x * half + two}, {"x": tf.TensorSpec([None], tf.float32)}, "/models/half"
      )

    Args:
      model: a function, tf.function or concrete function; a tf.Module or other object with
        `__call__`; a Keras model or layer of tf_keras or of Keras 3. If every signature has a
        function of its own, any object that owns the resources they use, or None.
      signatures: alias → tf.TensorSpec, for the one signature serving_default; or signature
        name → such a mapping; or signature name → (function, such a mapping). None takes the
        inputs of a Keras model, or of a tf.function with an input signature.
      export_dir_base: where version directories live; created if missing.
      batch_config: how a server batches requests before they go to the TPU, in the TPU metagraph;
        the first dimension of all inputs and outputs must be the batch. None: it does not.
      to_cpu: write the metagraph {serve}.
      to_tpu: write the metagraph {serve, tpu}.
      assets_extra: path below assets.extra/ → file to copy there.
      as_text: write saved_model.pbtxt in place of saved_model.pb.
      warm_up: which requests a server is to run before the model is ready; True for one per
        signature and allowed batch size, None for no file.

    Returns:
      The version directory, a child of the base named by a Unix time in seconds.

    Raises:
      ExportError: a model that cannot be exported as asked: it is not callable, returns something
        that is no tensor, uses a resource that nobody owns, has strings on the TPU, or more
        constants than a file can hold; or the place cannot be written.
      InvalidSetting, InvalidType: signatures or settings that no model can be exported with.
    """
    _check(batch_config, to_cpu=to_cpu, to_tpu=to_tpu)
    requests = normalize_warm_up(warm_up)
    staging = AtomicDirectory(
        export_dir_base, assets_extra=assets_extra, has_warm_up_file=requests is not None
    )
    wanted = entry_points.read_signatures(model, signatures)
    # Always: a function that makes its variables when first called makes them here, where they
    # are no part of a TPU computation.
    cpu = {each.name: placement.trace_for_cpu(each) for each in wanted}
    functions = {tags.SERVE: cpu} if to_cpu else {}
    if to_tpu:
        functions[tags.SERVE_TPU] = {
            each.name: placement.trace_for_tpu(each, batch_config) for each in wanted
        }
    exported = [each for named in functions.values() for each in named.values()]
    proto_size.check_proto_size(each.graph for each in exported)
    owners = [model, *(each.callee.function for each in wanted)]
    root = resource_holder.build_resource_holder(exported, owners)
    lines = {
        node: line
        for each in exported
        for node, line in debug_info.find_source_lines(each.graph).items()
    }
    with staging:
        meta_graphs = saved_model.write_saved_model(root, functions, staging.path, as_text=as_text)
        if len(meta_graphs) == 2:
            signature_parity.check_same_signatures(*(each.signature_def for each in meta_graphs))
        if requests is not None:
            warm_up_file.write_warm_up_file(staging.path, meta_graphs, requests)
        debug_info.write_debug_info(staging.path, lines)
    return staging.directory


def _check(batch_config: Any, *, to_cpu: bool, to_tpu: bool) -> None:
    if batch_config is not None and not isinstance(batch_config, BatchConfig):
        raise InvalidType(f"batch_config is {batch_config!r}. Give a BatchConfig, or None.")
    if not (to_cpu or to_tpu):
        raise ExportError(
            "to_cpu and to_tpu are both False, so there is nothing to write. Set one of them."
        )
    if not tf.executing_eagerly():
        raise ExportError(
            "TensorFlow does not execute eagerly: it is within a tf.Graph or a tf.function, or "
            "version 2 behavior is disabled. Call export outside of them."
        )
