"""Verifies a SavedModel without a TPU: compares its TPU metagraph with its CPU metagraph.

In this package, the baseline is the metagraph tagged {serve}, and the candidate is the metagraph
tagged {serve, tpu}.
"""

from tpuserve.comparison import Comparison
from tpuserve.verification.verification_report import (
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
