"""The service of the Open Inference Protocol (KServe V2): inference.GRPCInferenceService."""
