"""The data plane across processes: frontend processes send requests to the engine process."""
