"""The table of the ops that the lowering treats specially, and the rules that replace them.

The lowering turns a graph for a TPU into a graph for a CPU. A rule is a function that replaces the
ops of one type.
"""
