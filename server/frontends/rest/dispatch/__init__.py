"""Dispatches requests to routers: admission, bodies, time limits, threads, metrics."""
