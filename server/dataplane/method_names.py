"""Checks the method_name of signatures.

The method_name is the method, such as Predict, for which a signature was exported.
"""

from tpuserve.errors import Code, CodedError, InvalidInput
from tpuserve.saved_model.signature import (
    CLASSIFY_METHOD,
    PREDICT_METHOD,
    REGRESS_METHOD,
    Signature,
)

_PREDICTABLE = (PREDICT_METHOD, CLASSIFY_METHOD, REGRESS_METHOD)


def check_predict(signature: Signature) -> None:
    """Check that a signature was exported for Predict, Classify or Regress.

    Predict may run the signatures of all three methods.
    """
    if signature.method_name not in _PREDICTABLE:
        raise CodedError(
            f"Expected prediction signature method_name to be one of {{{', '.join(_PREDICTABLE)}}}"
            f". Was: {signature.method_name}",
            Code.INTERNAL,
        )


def check_classify(signature: Signature) -> None:
    """Check that a signature was exported for Classify."""
    _check_method_name("classification", CLASSIFY_METHOD, signature)


def check_regress(signature: Signature) -> None:
    """Check that a signature was exported for Regress."""
    _check_method_name("regression", REGRESS_METHOD, signature)


def _check_method_name(api: str, expected: str, signature: Signature) -> None:
    if signature.method_name != expected:
        raise InvalidInput(
            f"Expected {api} signature method_name to be {expected}. Was: {signature.method_name}"
        )
