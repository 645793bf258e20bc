"""Tables of the modules of tf.contrib, and of what replaces the symbols that tpuserve lacks."""
