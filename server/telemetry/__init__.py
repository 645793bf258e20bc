"""Traces: a span for each request, exported with OpenTelemetry's protocol (OTLP)."""
