"""Input functions over data in memory, and what an input_fn may return."""

from trainer.inputs.numpy_pandas import numpy_input_fn, pandas_input_fn

__all__ = ["numpy_input_fn", "pandas_input_fn"]
