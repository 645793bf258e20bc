"""Wrappers of functions that users give, such as a model_fn."""

import functools

wraps = functools.partial(functools.wraps, assigned=(*functools.WRAPPER_ASSIGNMENTS, "keywords"))
"""Like functools.wraps, but a wrapper of a functools.partial keeps its attribute `keywords` too.

An estimator finds there which arguments are bound already, and does not pass them again.
"""
