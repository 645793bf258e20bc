"""Describes the server and its models to clients of the Open Inference Protocol (KServe V2)."""
