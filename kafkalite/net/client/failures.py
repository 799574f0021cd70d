"""Says in one sentence why a connection was not made or has ended, and which setting to change.

Errors of certificates and protocols are fatal (KIP-152). A connection that merely ends during the handshake may be
opened again, but a listener without TLS does the same, so the text names both.
"""

import os
import re
import ssl

from kafkalite.errors import KafkaConnectionError, KafkaError, SslAuthenticationError

CERT_HAS_EXPIRED = 10
CERT_NOT_YET_VALID = 9
NAME_MISMATCHES = (62, 64)  # a host name; an IP address
SELF_SIGNED = (18, 19)
UNKNOWN_ISSUER = (2, 20, 21)

PLAINTEXT = 'set security_protocol to "PLAINTEXT" or "SASL_PLAINTEXT", or use the port of a TLS listener'
NO_ANSWER = (
    " before the first response; does the listener require TLS (security_protocol)? "
    "Is it a broker's port, below max.connections?"
)
NO_ANSWER_TLS = (
    " before the first response; does the listener require a client certificate (ssl_certfile)? "
    "Is it a broker's port, below max.connections?"
)
NO_ANSWER_AFTER_NEGOTIATION = "; does the listener require SASL (security_protocol)?"
NEGOTIATION_RESPONSES = 2
_ATTEMPT = re.compile(r"\[Errno (\d+)\]")
ALERT = re.compile(r"ALERT_([A-Z_]+)")
# Alerts of a broker that rejects the client's certificate, by parts of OpenSSL's names.
CLIENT_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE", "DECRYPT_ERROR")


def as_tls_error(error: OSError, name: str, host: str) -> KafkaError | None:
    """Return the error of a TLS handshake; None = TLS is not the reason.

    Arguments:
        error: that the transport has raised.
        name: of the broker, `host:port`.
        host: that the certificate must name.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return SslAuthenticationError(f"{name}: {_certificate_reason(error, host)}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError | ConnectionAbortedError):
        text = (
            f"{name}: the connection was closed during the TLS handshake; if the listener does not use TLS, {PLAINTEXT}"
        )
        return KafkaConnectionError(text)
    if isinstance(error, ssl.SSLError):
        return SslAuthenticationError(f"{name}: {_handshake_reason(error)}")
    return None


def _certificate_reason(error: ssl.SSLCertVerificationError, host: str) -> str:
    code, message = error.verify_code, error.verify_message
    if code == CERT_HAS_EXPIRED:
        return "the certificate of the broker, or one that signed it, has expired; renew it on the broker"
    if code == CERT_NOT_YET_VALID:
        return "the certificate of the broker is not valid yet; check the clocks of both machines"
    if code in NAME_MISMATCHES:
        return (
            f"the certificate of the broker is not for {host} ({message}); connect with a name of the certificate, or "
            "set ssl_check_hostname=False if every holder of a certificate of this issuer is trusted"
        )
    if code in SELF_SIGNED or code in UNKNOWN_ISSUER:
        return f"the issuer of the broker's certificate is not trusted ({message}); set ssl_cafile to its certificate"
    return f"the certificate of the broker is not valid: {message}"


def _handshake_reason(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return f"the listener does not speak TLS; {PLAINTEXT}"
    alert = ALERT.search(reason)
    if alert is not None and any(part in alert[1] for part in CLIENT_CERTIFICATE):
        reason = alert[1].lower().replace("_", " ")
        return f"the broker rejected the TLS handshake ({reason}); set ssl_certfile and ssl_keyfile as it requires them"
    if "PROTOCOL_VERSION" in reason or reason == "UNSUPPORTED_PROTOCOL":
        return "the broker and this client have no TLS version in common; this client uses TLS 1.2 and newer"
    return f"the TLS handshake failed ({reason})"


def why_ended(
    name: str, responses: int, error: Exception | None, *, secure: bool, with_sasl: bool, proven: bool = False
) -> KafkaError:
    """Return why a transport has ended.

    Arguments:
        name: of the broker, `host:port`.
        responses: number of responses that have arrived.
        error: of the transport; None = the broker has closed the connection.
        secure, with_sasl: whether the connection uses TLS, and whether it authenticates.
        proven: another connection with these settings has worked, so the text does not ask about them.
    """
    if secure and not responses and isinstance(error, OSError):
        failure = as_tls_error(error, name, name)
        if failure is not None:
            return failure
    if error is None:
        reason = "the connection was closed"
    else:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
    hint = ""
    if not responses and not proven:
        hint = NO_ANSWER_TLS if secure else NO_ANSWER
    elif responses <= NEGOTIATION_RESPONSES and not with_sasl and not proven:
        hint = NO_ANSWER_AFTER_NEGOTIATION
    return KafkaConnectionError(f"{name}: {reason}{hint}")


def reason_of(error: OSError | UnicodeError) -> str:
    """Return why there is no connection, in the system's words; asyncio lists one attempt for each address instead.

    An error about a file is no attempt: its text may be one of ours.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return error.strerror or str(error)
    numbers = map(int, _ATTEMPT.findall(str(error)))
    texts = ", ".join(dict.fromkeys(map(os.strerror, numbers)))
    return texts or (error.strerror if isinstance(error, OSError) else None) or str(error)
