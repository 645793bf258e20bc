"""The REST API of the Open Inference Protocol (KServe V2), below /v2."""
