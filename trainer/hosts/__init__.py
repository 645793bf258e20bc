"""Connects the processes of a program that runs on several hosts, with one process on each host.

With PJRT devices, each process runs the whole program. When the program first uses the TPU,
`program` connects the processes by TCP, with the help of `joining`, and then their jax clients.
`group` has the class of the connected processes, which exchange small values, such as a number of
steps, and notice when a process is lost. `trainer.execution.host_agreement` uses the group to make
the hosts stop together and start from the same checkpoint.
"""
