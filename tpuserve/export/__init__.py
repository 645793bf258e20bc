"""Writing a SavedModel with a CPU and a TPU metagraph."""

from tpuserve.export.batching import BatchConfig
from tpuserve.export.plain import export
from tpuserve.export.spec import MetagraphSpec
from tpuserve.export.user import call_computation, inference_on_tpu, model_fn_inference_on_tpu
from tpuserve.export.warm_up import WarmUp
from tpuserve.export.wrap import on_tpu
from tpuserve.export.writer import SavedModelWriter

__all__ = [
    "BatchConfig",
    "MetagraphSpec",
    "SavedModelWriter",
    "WarmUp",
    "call_computation",
    "export",
    "inference_on_tpu",
    "model_fn_inference_on_tpu",
    "on_tpu",
]
