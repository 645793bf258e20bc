"""The loop of steps on every replica, and the parts that add inputs and outputs to a step."""
