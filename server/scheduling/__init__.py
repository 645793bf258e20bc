"""The queues of requests, one per model, which share the threads of the server fairly."""
