"""Compares the training speed of tpuserve with that of TensorFlow 2.15's TPUEstimator."""
