"""Exports models as SavedModels that have a CPU metagraph and a TPU metagraph."""

from tpuserve.export.conversion.api import convert
from tpuserve.export.conversion.conversion_report import Conversion
from tpuserve.export.functional import export
from tpuserve.export.metagraph_spec import MetagraphSpec
from tpuserve.export.saved_model_writer import SavedModelWriter
from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.export.tpu.inference_api import (
    call_computation,
    inference_on_tpu,
    model_fn_inference_on_tpu,
)
from tpuserve.export.tpu.tpu_call import on_tpu
from tpuserve.export.warm_up import WarmUp

__all__ = [
    "BatchConfig",
    "Conversion",
    "MetagraphSpec",
    "SavedModelWriter",
    "WarmUp",
    "call_computation",
    "convert",
    "export",
    "inference_on_tpu",
    "model_fn_inference_on_tpu",
    "on_tpu",
]
