"""The methods of signatures: which API each was exported for."""

from tpuserve.errors import InvalidInput, WrongMethodName
from tpuserve.saved_model.signature import (
    CLASSIFY_METHOD,
    PREDICT_METHOD,
    REGRESS_METHOD,
    Signature,
)

_PREDICTABLE = (PREDICT_METHOD, CLASSIFY_METHOD, REGRESS_METHOD)


def check_predict(signature: Signature) -> None:
    """Refuses a signature that was exported for no API; any of them can be predicted with.

    Raises:
      WrongMethodName: it was not.
    """
    if signature.method_name not in _PREDICTABLE:
        raise WrongMethodName(
            f"Expected prediction signature method_name to be one of {{{', '.join(_PREDICTABLE)}}}"
            f". Was: {signature.method_name}"
        )


def check_classify(signature: Signature) -> None:
    """Refuses a signature that was exported for another API than Classify.

    Raises:
      InvalidInput: it was.
    """
    _check("classification", CLASSIFY_METHOD, signature)


def check_regress(signature: Signature) -> None:
    """Refuses a signature that was exported for another API than Regress.

    Raises:
      InvalidInput: it was.
    """
    _check("regression", REGRESS_METHOD, signature)


def _check(what: str, expected: str, signature: Signature) -> None:
    if signature.method_name != expected:
        raise InvalidInput(
            f"Expected {what} signature method_name to be {expected}. Was: {signature.method_name}"
        )
