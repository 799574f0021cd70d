"""Reads how tokens of OAUTHBEARER are verified on a listener: where the keys are, and which claims a token must have.

1. Keys, issuer and audience are required. Kafka's default accepts tokens without a signature, and a JWT validator of
   Kafka 4.1 accepted any token (CVE-2026-33557).
2. A URL is read only if the static configuration allows it, so that no other setting makes the broker read files or
   send requests (CVE-2025-27817).

Source: SaslConfigs.java, ConfigurationUtils.java of Apache Kafka 4.3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from kafkalite.config.keys import ConfigError, Value

URL = "sasl.oauthbearer.jwks.endpoint.url"
REFRESH_MS = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
RETRY_MS, RETRY_MAX_MS = f"{URL[:-3]}retry.backoff.ms", f"{URL[:-3]}retry.backoff.max.ms"
AUDIENCE, ISSUER = "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"
SKEW_S = "sasl.oauthbearer.clock.skew.seconds"
SCOPE_CLAIM, SUB_CLAIM = "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name"
ALLOWED_URLS = "kafkalite.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES = "kafkalite.sasl.oauthbearer.allowed.files"

T = TypeVar("T", int, str, tuple[str, ...])


@dataclass(frozen=True, slots=True)
class OAuthBearerSettings:
    """How tokens are verified on a listener.

    Attributes:
        prefix: of the listener's keys, for errors.
        url: of the keys; None: only a user-defined callback can verify tokens.
        path: of a file URL, else None.
        refresh_s: time between two reads of the keys, in seconds.
        retry_s, retry_max_s: time before a failed read is repeated, the first and the longest one, in seconds.
        audiences: the claim `aud` must have one of them.
        issuer: the claim `iss`.
        skew_s: permitted difference of the clocks, in seconds.
        scope_claim, sub_claim: names of claims.
    """

    prefix: str
    url: str | None
    path: str | None
    refresh_s: float
    retry_s: float
    retry_max_s: float
    audiences: tuple[str, ...]
    issuer: str
    skew_s: int
    scope_claim: str
    sub_claim: str

    def require(self) -> None:
        """Raise ConfigError unless tokens can be verified: keys, audience and issuer are set."""
        for key, value, example in (
            (URL, self.url, "an https or file URL of the issuer's keys"),
            (AUDIENCE, self.audiences, "the audience of tokens for this cluster"),
            (ISSUER, self.issuer, "the issuer of the tokens"),
        ):
            if not value:
                name = f"{self.prefix}oauthbearer.{key}"
                raise ConfigError(name, f"{key} is not set: OAUTHBEARER needs {example}; set {name}")


def oauthbearer_settings(prefix: str, value: Callable[[str], Value]) -> OAuthBearerSettings:
    """Return how tokens are verified on a listener; no file is read.

    Arguments:
        prefix: `listener.name.NAME.`.
        value: returns the value of a key.

    Raises:
        ConfigError: the URL is malformed or not allowed.
    """

    def read(key: str, default: T) -> T:
        found = value(key)
        return found if isinstance(found, type(default)) else default

    url = read(URL, "") or None
    path = None if url is None else _allowed_path(url, read(ALLOWED_URLS, ()), read(ALLOWED_FILES, ()))
    return OAuthBearerSettings(
        prefix,
        url,
        path,
        read(REFRESH_MS, 0) / 1000,
        read(RETRY_MS, 0) / 1000,
        read(RETRY_MAX_MS, 0) / 1000,
        read(AUDIENCE, ()),
        read(ISSUER, ""),
        read(SKEW_S, 0),
        read(SCOPE_CLAIM, ""),
        read(SUB_CLAIM, ""),
    )


def _allowed_path(url: str, urls: tuple[str, ...], files: tuple[str, ...]) -> str | None:
    """Return the path of a file URL, None for https. Raises ConfigError for any other, and if it is not allowed."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ConfigError(URL, f"{URL}: {url!r} is no URL") from None
    if parts.scheme == "https" and host and parts.username is None:
        if url not in urls:
            raise ConfigError(URL, f"{URL}: {url} is not allowed: add it to {ALLOWED_URLS}")
        return None
    if parts.scheme != "file" or host not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError(URL, f"{URL}: {url!r} is not allowed; expected https://HOST/PATH or file:///PATH")
    path = url2pathname(parts.path)
    if url not in urls and path not in files:
        raise ConfigError(URL, f"{URL}: {url} is not allowed: add {path} to {ALLOWED_FILES}")
    return str(Path(path))
