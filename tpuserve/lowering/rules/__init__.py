"""The table of the ops that the lowering treats specially, and the functions that replace them.

The lowering turns a graph for a TPU into a graph for a CPU. The functions are called rules.
"""
