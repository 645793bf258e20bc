"""Classifies the names that a program uses: whether they exist, in TensorFlow or in tpuserve."""
