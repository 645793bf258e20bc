"""The processes of a program that runs on several hosts, one process on each.

`group` holds the connections between the processes: they exchange small values, such as "stop", and
notice when one of them is lost. `joining` connects the processes at the start of a program, and
`jax_processes` connects jax's clients. `agreement` uses the group to keep the hosts in step.
"""
