"""The sample model `digits`, which classifies handwritten digits of 8 x 8 pixels.

`tools/sample_model.py` trains and exports the model.
"""

from pathlib import Path

from tpuserve.errors import InvalidSetting

NAME = "digits"
BASE_PATH = Path(__file__).parent / "models" / NAME

REQUEST = """\
{"instances": [[
  [0,0,1,1,1,1,0,0],
  [0,1,0,0,0,1,0,0],
  [0,0,0,0,0,1,0,0],
  [0,0,0,1,1,0,0,0],
  [0,0,0,0,0,1,0,0],
  [0,0,0,0,0,1,0,0],
  [0,1,0,0,0,1,0,0],
  [0,0,1,1,1,0,0,0]]]}"""
"""The body of a request with the picture of a 3."""


def check_flags(model_base_path: str, model_config_file: str) -> None:
    """Raise an error if a flag selects a model, because the sample model is served."""
    for flag, value in (
        ("--model_base_path", model_base_path),
        ("--model_config_file", model_config_file),
    ):
        if value:
            raise InvalidSetting(
                f"--sample serves the sample model, and {flag}={value} names another model. "
                "Remove one of the two flags."
            )


def curl_command(port: int) -> str:
    """Return a curl command that sends the picture of a digit to the sample model."""
    return f"curl -d '{REQUEST}' http://localhost:{port}/v1/models/{NAME}:predict"
