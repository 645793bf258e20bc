"""Compares the speed of training in tpuserve with TensorFlow 2.15's TPUEstimator."""
