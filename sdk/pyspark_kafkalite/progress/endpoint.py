"""Serves metrics by HTTP, for Prometheus to scrape."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyspark_kafkalite.progress.metrics import PipelineMetrics
from pyspark_kafkalite.progress.model import BatchProgress

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsEndpoint:
    """Serves `http://HOST:PORT/metrics`.

    Arguments:
        host: address to listen at.
        port: 0 = a free one, see `port`.

    Raises:
        OSError: the port is in use.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._metrics = metrics = PipelineMetrics()
        self._lock = lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == "/metrics"
                with lock:
                    body = metrics.text().encode() if found else b"only /metrics exists\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: scrapes are frequent."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="kafkalite-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port."""
        return self._server.server_port

    def batch(self, progress: BatchProgress) -> None:
        """Count a micro-batch."""
        with self._lock:
            self._metrics.batch(progress)

    def ended(self, query: str, error: str | None) -> None:
        """Count a query that has ended."""
        with self._lock:
            self._metrics.ended(query, error)

    def close(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
