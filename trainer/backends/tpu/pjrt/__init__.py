"""Runs training, evaluation or prediction steps on PJRT devices, and the other ops on the CPU.

PJRT is jax's interface to devices. `device_loop` runs several steps in a loop on the devices. A
session on the CPU runs the rest of the graph, such as the input and the hooks. `resident_variables`
copies variables between the devices and this session, and `variable_uses` finds the variables that
a `session.run` needs. `session` combines the three in a class with the interface of a
tf.compat.v1.Session.
"""
