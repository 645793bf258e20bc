"""Finds hazards in a TPU metagraph: ops and shapes that cause trouble only on a real TPU.

A hazard may cause an error, a delay by compilation, or results that differ from those on a CPU.
"""
