"""Knows which packages define ops that TensorFlow itself lacks."""

# The start of an op's name → the package. The ops of tensorflow_text without a namespace are
# those that it registers by these names.
_PACKAGES = {
    "TFText>": "tensorflow_text",
    "Sentencepiece": "tensorflow_text",
    "FastSentencepiece": "tensorflow_text",
    "Wordpiece": "tensorflow_text",
    "FastWordpiece": "tensorflow_text",
    "FastBertNormalize": "tensorflow_text",
    "SimpleML": "tensorflow_decision_forests",
    "Addons>": "tensorflow_addons",
    "IO>": "tensorflow_io",
    "TFRA>": "tensorflow_recommenders_addons",
    "Horovod": "horovod",
}


def op_with_package(op: str) -> str:
    """Return an op's name, with the package that defines it if that is known.

    For example "Addons>Gelu (tensorflow_addons)".
    """
    for start, package in _PACKAGES.items():
        if op.startswith(start):
            return f"{op} ({package})"
    return op
