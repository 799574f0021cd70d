"""A token endpoint of OpenID Connect for librdkafka's test 0126: it gives each client a token, valid, expired or of
another audience, and does not check the client's secret.

The tests of librdkafka name its URLs by variables of their process.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.kit.tokens import Issuer

LIFETIME_S = 60
IDENTITY = {"client_id", "resource", "api-version"}  # parameters of a GET
PATHS = {"VALID_OIDC_URL": "/valid", "EXPIRED_TOKEN_OIDC_URL": "/expired", "INVALID_OIDC_URL": "/invalid"}


class Endpoint(ThreadingHTTPServer):
    """Serves the tokens of an issuer on a free port of 127.0.0.1.

    Arguments:
        issuer: signs the tokens.
        user: their subject.
    """

    daemon_threads = True

    def __init__(self, issuer: Issuer, user: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.issuer = issuer
        self.user = user

    def tokens(self) -> dict[str, str]:
        """A new token by path."""
        now = int(time.time())
        claims = {"sub": self.user, "client_id": self.user, "iat": now - LIFETIME_S}
        return {
            "/valid": self.issuer.token(exp=now + LIFETIME_S, **claims),
            "/expired": self.issuer.token(exp=now - 1, **claims),
            "/invalid": self.issuer.token(exp=now + LIFETIME_S, aud="another audience", **claims),
        }


class Handler(BaseHTTPRequestHandler):
    """Answers each request with a token."""

    server: Endpoint

    def do_POST(self) -> None:
        """Answer the request of a client with its secret."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    def do_GET(self) -> None:
        """Answer the request of a client that has an identity in a cloud (Azure's Instance Metadata Service)."""
        if set(parse_qs(urlsplit(self.path).query)) >= IDENTITY:
            self._answer()
        else:
            self.send_error(400)

    def _answer(self) -> None:
        token = self.server.tokens().get(urlsplit(self.path).path)
        if token is None:
            self.send_error(404)
            return
        body = json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_S}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """The output is that of the tests."""


@contextmanager
def token_endpoint(issuer: Issuer, user: str) -> Iterator[dict[str, str]]:
    """A running endpoint; its URLs by the variables of librdkafka's tests."""
    with Endpoint(issuer, user) as endpoint:
        serving = threading.Thread(target=endpoint.serve_forever)
        serving.start()
        try:
            yield {name: f"http://127.0.0.1:{endpoint.server_port}{path}" for name, path in PATHS.items()}
        finally:
            endpoint.shutdown()
            serving.join()
