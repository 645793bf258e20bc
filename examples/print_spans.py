"""Print the spans that a server exports, in the place of an OpenTelemetry collector.

    $ python examples/print_spans.py 4317
    $ tpuserve serve --sample --otlp_endpoint=http://localhost:4317

A line has the trace ID of a span, its name and its duration. The spans within another span are
indented.
"""

import argparse
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                ids = {span.span_id for span in scope.spans}
                for span in scope.spans:
                    if span.parent_span_id not in ids:
                        print_span(span, scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


def print_span(span, spans, indent=""):
    milliseconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
    print(f"{span.trace_id.hex()} {indent}{span.name}: {milliseconds:.3f} ms", flush=True)
    for child in sorted(spans, key=lambda other: other.start_time_unix_nano):
        if child.parent_span_id == span.span_id:
            print_span(child, spans, indent + "  ")


def main(port):
    server = grpc.server(futures.ThreadPoolExecutor())
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
    server.add_insecure_port(f"localhost:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int, help="the port that --otlp_endpoint names, usually 4317")
    main(parser.parse_args().port)
