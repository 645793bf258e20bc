"""Gives access to the private functions, classes and attributes of TensorFlow that tpuserve uses.

No other module of tpuserve imports from `tensorflow.python` or touches a private attribute of a
TensorFlow object. A new TensorFlow version can change these names without notice.
"""

import importlib
import importlib.metadata
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tpuserve.errors import UnsupportedVersion

# Name that this module offers → the TensorFlow module that defines the object, and the attribute of
# that module. An empty attribute stands for the module itself.
_NAMES: dict[str, tuple[str, str]] = {
    "AtomicFunction": ("eager.polymorphic_function.atomic_function", "AtomicFunction"),
    "CapturableResource": ("trackable.resource", "CapturableResource"),
    "ClassificationOutput": ("saved_model.model_utils.export_output", "ClassificationOutput"),
    "ConcreteFunction": (
        "eager.polymorphic_function.concrete_function",
        "ConcreteFunction",
    ),
    "FuncGraph": ("framework.func_graph", "FuncGraph"),
    "PredictOutput": ("saved_model.model_utils.export_output", "PredictOutput"),
    "RegressionOutput": ("saved_model.model_utils.export_output", "RegressionOutput"),
    "ResourceVariable": ("ops.resource_variable_ops", "ResourceVariable"),
    "Trackable": ("trackable.base", "Trackable"),
    "autograph_api": ("autograph.impl.api", ""),
    "autograph_context": ("autograph.core.ag_ctx", ""),
    "autograph_parser": ("autograph.pyct.parser", ""),
    "c_api": ("client.pywrap_tf_session", ""),
    "constant_value": ("framework.tensor_util", "constant_value"),
    "cpp_shape_inference_pb2": ("framework.cpp_shape_inference_pb2", ""),
    "deprecation": ("util.deprecation", ""),
    "eager_context": ("eager.context", ""),
    "fingerprinting_utils": ("saved_model.fingerprinting_utils", ""),
    "func_graph_from_py_func": ("framework.func_graph", "func_graph_from_py_func"),
    "function_def_to_graph_def": (
        "framework.function_def_to_graph",
        "function_def_to_graph_def",
    ),
    "gen_batch_ops": ("ops.gen_batch_ops", ""),
    "handle_data_util": ("ops.handle_data_util", ""),
    "kernels": ("framework.kernels", ""),
    "op_def_registry": ("framework.op_def_registry", ""),
    "ops": ("framework.ops", ""),
    "remove_default_attrs": ("framework.importer", "_RemoveDefaultAttrs"),
    "saved_model_loader": ("saved_model.loader_impl", ""),
    "saved_model_save": ("saved_model.save", ""),
    "tensor_util": ("framework.tensor_util", ""),
    "tpu_function": ("tpu.tpu_function", ""),
    "tpu_functional": ("tpu.functional", ""),
    "tpu_ops": ("tpu.ops.tpu_ops", ""),
}
# A module or class of _NAMES, by its key there → the attributes of it that tpuserve uses. These
# attributes are checked when the module or class is imported.
_MODULE_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "ConcreteFunction": ("from_func_graph",),
    "autograph_api": ("tf_convert",),
    "autograph_context": ("ControlStatusCtx", "Status"),
    "autograph_parser": ("parse_entity",),
    "c_api": (
        "TF_DeleteBuffer",
        "TF_DeleteImportGraphDefOptions",
        "TF_DeleteImportGraphDefResults",
        "TF_GetAllOpList",
        "TF_GetBuffer",
        "TF_GraphImportGraphDefWithResults",
        "TF_ImportGraphDefOptionsAddInputMapping",
        "TF_ImportGraphDefOptionsAddReturnOperation",
        "TF_ImportGraphDefOptionsRemapControlDependency",
        "TF_ImportGraphDefOptionsSetValidateColocationConstraints",
        "TF_ImportGraphDefResultsReturnOperations",
        "TF_NewBufferFromString",
        "TF_NewImportGraphDefOptions",
        "TF_Output",
    ),
    "cpp_shape_inference_pb2": ("CppShapeInferenceResult",),
    "deprecation": ("_PRINT_DEPRECATION_WARNINGS",),
    "eager_context": ("context", "eager_mode"),
    "fingerprinting_utils": ("write_fingerprint",),
    "gen_batch_ops": ("batch_function",),
    "handle_data_util": ("set_handle_data",),
    "kernels": ("get_all_registered_kernels",),
    "op_def_registry": ("get",),
    "ops": ("dismantle_graph",),
    "saved_model_loader": ("parse_saved_model",),
    "saved_model_save": ("export_meta_graph", "save_and_return_nodes"),
    "tensor_util": ("MakeNdarray", "make_tensor_proto"),
    "tpu_function": ("get_tpu_context",),
    "tpu_functional": ("TPUPartitionedCall",),
    "tpu_ops": ("tpu_ordinal_selector",),
}
# Public name of a TensorFlow class → the private attributes of its objects that tpuserve uses.
# `check_tensorflow_internals` checks that they exist.
_OBJECT_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "AtomicFunction": ("_cached_graph",),
    "tf.DType": ("_is_ref_dtype",),
    "tf.Graph": ("_c_graph", "_create_op_internal", "_functions", "_get_function"),
    "tf.Module": ("_trackable_children",),
    "tf.Tensor": ("_as_tf_output",),
    "tf.compat.v1.Session": ("_call_tf_sessionrun", "_config", "_make_callable_from_options"),
    "tf.compat.v1.saved_model.Builder": ("_saved_model",),
    "tf.function": ("_autograph",),
}


def __getattr__(name: str) -> Any:
    """Import and return the private TensorFlow object that this module offers under a name."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, attribute = _NAMES[name]
    value = import_private_name(
        f"tensorflow.python.{module_name}", attribute, used=_MODULE_ATTRIBUTES.get(name, ())
    )
    globals()[name] = value
    return value


def import_private_name(
    module_name: str, attribute: str, package: str = "tpuserve", used: Iterable[str] = ()
) -> Any:
    """Import a private name of TensorFlow."""
    name = f"{module_name}.{attribute}".rstrip(".")
    try:
        module = importlib.import_module(module_name)
        value = getattr(module, attribute) if attribute else module
    except (ImportError, AttributeError) as error:
        raise unsupported_tensorflow([name], package) from error
    missing = list_missing_attributes(name, value, used)
    if missing:
        raise unsupported_tensorflow(missing, package)
    return value


def make_session_callable(session: Any, options: Any) -> Any:
    """Return a function that runs a session with fixed feeds and fetches, faster than `run`."""
    return get_private_attribute(session, "_make_callable_from_options")(options)


def run_session(
    session: Any, options: Any, feeds: Any, fetches: Any, targets: Sequence[Any] = ()
) -> Any:
    """Run a session whose feeds and fetches are handles of TensorFlow's C API.

    Args:
      feeds: TF_Output → array.
    """
    run = get_private_attribute(session, "_call_tf_sessionrun")
    return run(options, feeds, fetches, list(targets), None)


def get_session_config(session: Any) -> Any:
    """Return the ConfigProto that a session was created with; None if it has no ConfigProto."""
    return get_private_attribute(session, "_config")


def get_c_graph(graph: Any) -> Any:
    """Return the object that has the TF_Graph handle of a `tf.Graph`.

    Its method `get` returns a context manager, which yields the handle.
    """
    return get_private_attribute(graph, "_c_graph")


def get_graph_functions(graph: Any) -> Any:
    """Return the functions in the library of a `tf.Graph`: name → function."""
    return get_private_attribute(graph, "_functions")


def get_graph_function(graph: Any, name: str) -> Any:
    """Find a function in the library of a `tf.Graph` by its name; None if there is none."""
    return get_private_attribute(graph, "_get_function")(name)


def replace_created_ops(graph: Any, replace: Callable[[str, Any], Any]) -> None:
    """Let a function replace operations that code creates in a graph after this call.

    Args:
      replace: called with the type and the attributes of an operation before it is created.
        It returns an existing operation to use instead, or None to create the operation.
    """
    create = get_private_attribute(graph, "_create_op_internal")

    def create_or_replace(op_type: str, *arguments: Any, **options: Any) -> Any:
        replacement = replace(op_type, options.get("attrs"))
        return create(op_type, *arguments, **options) if replacement is None else replacement

    setattr(graph, "_create_op_internal", create_or_replace)  # noqa: B010


def get_traced_graph(function: Any) -> Any:
    """Return the FuncGraph from which a function of `get_graph_functions` was made.

    Returns:
      The FuncGraph; None if the function was read from a file or made by TensorFlow 1's Defun.
    """
    if not isinstance(function, __getattr__("AtomicFunction")):
        return None
    return get_private_attribute(function, "_cached_graph")


def get_saved_model(builder: Any) -> Any:
    """Return the SavedModel message that a `tf.compat.v1.saved_model.Builder` writes."""
    return get_private_attribute(builder, "_saved_model")


def uses_autograph(function: Any) -> bool:
    """Return whether a `tf.function` was created with autograph=True."""
    return bool(get_private_attribute(function, "_autograph"))


def get_tensor_output(tensor: Any) -> Any:
    """Return the TF_Output, the handle of the C API, of a tensor in a graph."""
    return get_private_attribute(tensor, "_as_tf_output")()


def get_trackable_children(trackable: Any) -> Any:
    """Return the objects that a checkpoint of a trackable object contains: name → object."""
    return get_private_attribute(trackable, "_trackable_children")("checkpoint")


def is_ref_dtype(dtype: Any) -> bool:
    """Return whether a `tf.DType` is a reference dtype, the kind of a TensorFlow 1 RefVariable."""
    return bool(get_private_attribute(dtype, "_is_ref_dtype"))


def check_tensorflow_internals() -> None:
    """Check that the installed TensorFlow has every private name that tpuserve uses.

    This function imports TensorFlow.

    Raises:
      UnsupportedVersion: names are missing; the message lists them all.
    """
    missing: list[str] = []
    for name, (module_name, attribute) in _NAMES.items():
        path = f"tensorflow.python.{module_name}"
        try:
            value = import_private_name(path, attribute)
        except UnsupportedVersion:
            missing.append(f"{path}.{attribute}".rstrip("."))
        else:
            missing += list_missing_attributes(name, value, _MODULE_ATTRIBUTES.get(name, ()))
    for name, value in _make_objects().items():
        missing += list_missing_attributes(name, value, _OBJECT_ATTRIBUTES[name])
    if missing:
        raise unsupported_tensorflow(missing)


def _make_objects() -> dict[str, Any]:
    """Make an object of each class in `_OBJECT_ATTRIBUTES`: name of the class → object."""
    import tensorflow as tf

    function = tf.function(lambda x: x)
    called = tf.function(lambda x: function(x)).get_concrete_function(tf.TensorSpec([])).graph
    with (
        tempfile.TemporaryDirectory() as directory,
        tf.Graph().as_default() as graph,
        tf.compat.v1.Session() as session,
    ):
        return {
            "AtomicFunction": next(iter(get_graph_functions(called).values())),
            "tf.DType": tf.float32,
            "tf.Graph": graph,
            "tf.Module": tf.Module(),
            "tf.Tensor": tf.constant(1),
            "tf.compat.v1.Session": session,
            "tf.compat.v1.saved_model.Builder": tf.compat.v1.saved_model.Builder(
                f"{directory}/model"
            ),
            "tf.function": function,
        }


def list_missing_attributes(name: str, value: Any, attributes: Iterable[str]) -> list[str]:
    """Return the attributes that an object lacks, each as "NAME.ATTRIBUTE"."""
    return [f"{name}.{attribute}" for attribute in attributes if not hasattr(value, attribute)]


def get_private_attribute(value: Any, attribute: str, package: str = "tpuserve") -> Any:
    """Return a private attribute of a TensorFlow object."""
    try:
        return getattr(value, attribute)
    except AttributeError as error:
        name = f"{type(value).__name__}.{attribute}"
        raise unsupported_tensorflow([name], package) from error


def unsupported_tensorflow(names: Iterable[str], package: str = "tpuserve") -> UnsupportedVersion:
    """Create the error for a TensorFlow version that lacks private names."""
    try:
        version = importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return UnsupportedVersion(
        f"TensorFlow {version} lacks private names that {package} uses: {', '.join(names)}. "
        f"Install a supported version: tensorflow>=2.20,<2.22."
    )
