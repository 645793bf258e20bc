"""The loop of steps that every replica runs, and the `StepPart`s of a step.

A step runs model_fn on one batch. A `StepPart` adds an input or an output to the step, such as the
tensors of a host_call.
"""
