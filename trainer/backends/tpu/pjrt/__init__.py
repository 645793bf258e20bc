"""Runs the loop of steps on PJRT devices; a session on the CPU runs the rest of the graph.

`device_loop` runs the loop, `resident_variables` copies variables between the devices and the
session, and `variable_uses` finds the variables that a `session.run` needs. `session` combines the
three in a class with the interface of a tf.compat.v1.Session.
"""
