"""Warnings of foreign client libraries about themselves, which fail no test."""

from __future__ import annotations

from tests.kit.brokers import AGAINST

FOREIGN_WARNINGS = ["ignore::DeprecationWarning:kafka.*"]
if AGAINST == "kafkalite-secured":
    # kafka-python forgets the socket of a TLS handshake that fails, as while a broker restarts; aiokafka does not wait
    # for the end of a TLS connection. The SDK's own connections: tests/compat/test_sdk_security.py.
    for text in ("unclosed .ssl.SSLSocket", "unclosed transport", "unclosed .socket.socket"):
        FOREIGN_WARNINGS.append(f"ignore:{text}:ResourceWarning")
    for text in (".ssl.SSLSocket", ".function _SelectorTransport.__del__", ".socket.socket"):
        FOREIGN_WARNINGS.append(f"ignore:Exception ignored in. {text}:pytest.PytestUnraisableExceptionWarning")
