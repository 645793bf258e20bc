"""Creates a trace span for each request, and exports the spans with OpenTelemetry's OTLP."""
