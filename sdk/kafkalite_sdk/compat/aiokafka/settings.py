"""The arguments of aiokafka as options of the SDK."""

import warnings
from typing import Any

from kafkalite_sdk.compat.aiokafka.abc import AbstractTokenProvider

CLIENT_ARGUMENTS = (
    "client_id",
    "request_timeout_ms",
    "retry_backoff_ms",
    "metadata_max_age_ms",
    "connections_max_idle_ms",
    "security_protocol",
    "ssl_context",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_oauth_token_provider",
)
"""The arguments of `client_options`."""

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def warn_of(**arguments: object) -> None:
    """Warn of arguments without effect that are set, as aiokafka does."""
    for name, value in arguments.items():
        if value is not None:
            warnings.warn(f"the argument {name} has no effect", DeprecationWarning, stacklevel=4)


def reject_arguments(subject: str, step: str) -> ValueError:
    """The error for arguments of aiokafka that are not supported.

    Arguments:
        subject: the argument and its value.
        step: what to do instead.
    """
    return ValueError(f"{subject} is not supported by kafkalite_sdk.compat.aiokafka; {step} (docs/aiokafka.md)")


def client_options(
    *,
    security_protocol: str,
    ssl_context: Any,
    sasl_mechanism: str,
    sasl_plain_username: str | None,
    sasl_plain_password: str | None,
    sasl_oauth_token_provider: AbstractTokenProvider | None,
    **options: Any,
) -> dict[str, Any]:
    """Return the options of the SDK for aiokafka's arguments about connections.

    Arguments:
        security_protocol, ssl_context, sasl_mechanism, sasl_plain_username, sasl_plain_password,
            sasl_oauth_token_provider: as in aiokafka.
        options: those with the same name in the SDK; None = the default of the SDK.

    Raises: ValueError with aiokafka's text, which programs match.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if security_protocol not in PROTOCOLS:
        raise ValueError(
            f"`security_protocol` should be SSL or PLAINTEXT, or SASL_ before it; got {security_protocol!r}"
        )
    if security_protocol.endswith("SSL") and ssl_context is None:
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'; see helpers.create_ssl_context")
    if security_protocol == "PLAINTEXT":
        return options
    options |= {"security_protocol": security_protocol}
    if ssl_context is not None:
        options["ssl_context"] = ssl_context
    if not security_protocol.startswith("SASL"):
        return options
    if sasl_mechanism == "GSSAPI":
        raise reject_arguments('sasl_mechanism="GSSAPI"', "use SCRAM-SHA-512, OAUTHBEARER or PLAIN")
    if sasl_mechanism == "PLAIN" and (sasl_plain_username is None or sasl_plain_password is None):
        raise ValueError("sasl_plain_username and sasl_plain_password required for PLAIN sasl")
    options["sasl_mechanism"] = sasl_mechanism
    if sasl_oauth_token_provider is not None:
        options["sasl_token"] = sasl_oauth_token_provider.token
    else:
        options |= {"sasl_username": sasl_plain_username, "sasl_password": sasl_plain_password}
    return options
