"""Input functions that read data in memory, and the conversion of input_fn results to tensors."""

from trainer.inputs.numpy_pandas import numpy_input_fn, pandas_input_fn

__all__ = ["numpy_input_fn", "pandas_input_fn"]
