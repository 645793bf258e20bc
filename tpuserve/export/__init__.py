"""Writing a SavedModel with a CPU and a TPU metagraph."""

from tpuserve.export.spec import MetagraphSpec
from tpuserve.export.wrap import on_tpu
from tpuserve.export.writer import SavedModelWriter

__all__ = ["MetagraphSpec", "SavedModelWriter", "on_tpu"]
