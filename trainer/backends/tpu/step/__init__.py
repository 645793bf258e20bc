"""The loop of steps that every replica runs, and the parts that add inputs and outputs to it."""
