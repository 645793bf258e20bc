"""The loop of a TPU program on PJRT devices, beside the session that runs the host's part.

`device_loop` runs the loop, `resident_variables` copies variables between the devices and the
session, `variable_uses` finds the variables that a `session.run` needs, and `session` brings all of
them together behind the interface of a tf.compat.v1.Session.
"""
