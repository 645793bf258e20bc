"""Converts tensors and infer requests of the Open Inference Protocol (KServe V2)."""
