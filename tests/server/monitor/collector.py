"""A collector of OpenTelemetry in the test's own process: OTLP over HTTP, as the SDK sends it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Row = dict[str, Any]


@define
class Collector:
    """What came; `endpoint` is where it is sent to. `status` is what senders are answered."""

    endpoint: str = ""
    status: int = 200
    resources: list[Row] = field(factory=list)
    spans: list[Row] = field(factory=list)
    metrics: dict[str, Row] = field(factory=dict)
    refused: int = 0

    def traces(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            told = attributes(MessageToDict(resource.resource))
            self.resources.append(told)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    row = MessageToDict(span, preserving_proto_field_name=True)
                    self.spans.append(
                        {
                            **row,
                            "trace_id": span.trace_id.hex(),
                            "span_id": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "start": span.start_time_unix_nano,
                            "end": span.end_time_unix_nano,
                            "attributes": attributes(row),
                            "member": told["service.instance.id"],
                        }
                    )

    def measured(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self.metrics[metric.name] = MessageToDict(metric)


def attributes(row: Row) -> Row:
    """Attributes as a dict; OTLP has a list of keys with typed values."""
    return {one["key"]: next(iter(one["value"].values())) for one in row.get("attributes", [])}


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a free port of 127.0.0.1."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if found.status != 200:
                found.refused += 1
            else:
                take = {"/v1/traces": found.traces, "/v1/metrics": found.measured}[self.path]
                take(body)
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
