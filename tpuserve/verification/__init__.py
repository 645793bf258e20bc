"""Whether the TPU metagraph of a SavedModel does what its CPU metagraph does.

The words of a comparison: the baseline is {serve}, the candidate is {serve, tpu}.
"""

from tpuserve.verification.report import (
    Comparison,
    Hazard,
    Report,
    Run,
    Timing,
    VerifiedSignature,
)
from tpuserve.verification.verifier import verify

__all__ = [
    "Comparison",
    "Hazard",
    "Report",
    "Run",
    "Timing",
    "VerifiedSignature",
    "verify",
]
