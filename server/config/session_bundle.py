"""PlatformConfigMap and the messages in it.

TensorFlow Serving's Python package leaves most of them out. Source:
tensorflow_serving/config/platform_config.proto and servables/tensorflow,
saved_model_bundle_source_adapter.proto and session_bundle_config.proto.
"""

from typing import Any

from google.protobuf import any_pb2, wrappers_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from server.config import messages

ADAPTER = "tensorflow.serving.SavedModelBundleSourceAdapterConfig"

_INT32 = ".google.protobuf.Int32Value"
_BOOL = ".google.protobuf.BoolValue"

# Message → field → its number and type.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "ModelWarmupOptions": {
        "num_request_iterations": (1, _INT32),
        "num_model_warmup_threads": (2, _INT32),
        "enable_all_batch_sizes_warmup": (3, _BOOL),
    },
    "SessionBundleConfig": {
        "session_target": (1, "string"),
        "batching_parameters": (3, ".tensorflow.serving.BatchingParameters"),
        "session_run_load_threadpool_index": (4, _INT32),
        "experimental_transient_ram_bytes_during_load": (5, "uint64"),
        "saved_model_tags": (6, "repeated string"),
        "enable_model_warmup": (779, "bool"),
        "model_warmup_options": (780, ".tensorflow.serving.ModelWarmupOptions"),
        "enable_session_metadata": (781, "bool"),
        "remove_unused_fields_from_bundle_metagraph": (782, "bool"),
        "prefer_tflite_model": (783, "bool"),
        "resource_estimation_uses_validation_result": (784, "bool"),
        "num_tflite_interpreters": (785, "int32"),
        "num_tflite_interpreters_per_pool": (786, "int32"),
        "num_tflite_pools": (787, "int32"),
        "wrap_session_with_no_threading_params": (788, "bool"),
        "enable_per_model_batching_params": (789, "bool"),
        # The next free number: no package publishes this field's. It counts in binary alone.
        "mixed_precision": (790, "string"),
    },
    "SavedModelBundleSourceAdapterConfig": {
        "legacy_config": (1000, ".tensorflow.serving.SessionBundleConfig"),
    },
    "PlatformConfig": {"source_adapter_config": (1, ".google.protobuf.Any")},
    # A map is a list of these, in text as on the wire.
    "PlatformConfigEntry": {
        "key": (1, "string"),
        "value": (2, ".tensorflow.serving.PlatformConfig"),
    },
    "PlatformConfigMap": {
        "platform_configs": (1, "repeated .tensorflow.serving.PlatformConfigEntry"),
    },
}
# Fields of TensorFlow's own kinds.
_OF_TENSORFLOW = {
    "session_config": (2, ".tensorflow.ConfigProto"),
    "experimental_fixed_input_tensors": (778, "repeated .tensorflow.NamedTensorProto"),
}


def pool_for(text: str) -> DescriptorPool:
    """The messages that a PlatformConfigMap in text form may hold.

    TensorFlow is imported where the text has a field of its kinds.
    """
    pool = messages.make_pool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    needed = [messages.FILE, any_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name]
    declared = dict(_MESSAGES)
    # With "type_url" a message may be there in its binary form, which no word tells.
    if any(word in text for word in (*_OF_TENSORFLOW, "type_url")):
        declared["SessionBundleConfig"] = {**_MESSAGES["SessionBundleConfig"], **_OF_TENSORFLOW}
        needed += _add_tensorflow(pool)
    messages.declare(pool, "server/platform.proto", declared, needed)
    return pool


def _add_tensorflow(pool: DescriptorPool) -> list[str]:
    from tpuserve.runtime import tf_logging

    tf_logging.import_tensorflow()
    from tensorflow.core.protobuf import config_pb2, named_tensor_pb2

    files: list[Any] = [config_pb2.DESCRIPTOR, named_tensor_pb2.DESCRIPTOR]
    for each in files:
        _add(pool, each, set())
    return [each.name for each in files]


def _add(pool: DescriptorPool, file: FileDescriptor, added: set[str]) -> None:
    if file.name in added:
        return
    added.add(file.name)
    for each in file.dependencies:
        _add(pool, each, added)
    pool.AddSerializedFile(file.serialized_pb)
