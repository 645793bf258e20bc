"""The processes of a program that runs on several hosts, one process on each.

`joining` connects the processes by TCP at the program's first run on a TPU, and `program` calls it
and then connects jax's clients. `group` holds the connections: with them the processes exchange
small values, such as a number of steps, and notice when a process is lost. `forwarder` keeps jax's
client running after the loss of host 0. `trainer.execution.host_agreement` uses the group to make
the hosts stop together and start from the same checkpoint.
"""
