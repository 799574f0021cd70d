"""SaslHandshake, key 17, v0-1. Selects a SASL mechanism (KIP-43).

Version notes: v0 is followed by frames without a Kafka header, v1 by SaslAuthenticate (KIP-152).
Source: SaslHandshakeRequest.json, SaslHandshakeResponse.json of Apache Kafka 4.3.
"""

from kafkalite.protocol.schema import Request, Response, int16, string


class SaslHandshakeRequest(Request, key=17, versions=(0, 1)):
    """The mechanism."""

    mechanism: string


class SaslHandshakeResponse(Response, key=17, versions=(0, 1)):
    """The mechanisms of the listener."""

    error_code: int16 = 0
    mechanisms: list[string]
