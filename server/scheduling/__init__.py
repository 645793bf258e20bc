"""The queues of requests: one per model, from which threads are dispatched fairly."""
