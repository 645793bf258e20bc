"""Tables of tf.contrib's modules, and advice on symbols of tf.contrib that tpuserve lacks."""
