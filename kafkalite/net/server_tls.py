"""The TLS side of a listener: contexts for its connections, replaced when files or configs change, and principals.

1. Only new connections use a changed certificate. A store that cannot be used is reported, and the previous context
   stays in use.
2. Contexts are built outside the event loop after the start (`ServerTls.build`): keys may be encrypted.
3. Clients resume sessions by tickets, which end with their context. Renegotiation is refused.
"""

import logging
import ssl
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.config.security import TlsSettings
from kafkalite.model import ANONYMOUS, USER, Principal
from kafkalite.net.alerts import AlertingContext
from kafkalite.net.certificates import validity_error
from kafkalite.net.cipher_suites import use_cipher_suites
from kafkalite.net.distinguished_names import distinguished_name
from kafkalite.net.key_stores import load_key, load_trusted, stamp_of
from kafkalite.net.principal_mapping import PrincipalMapper

LOGGER = logging.getLogger("kafkalite.net")
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
Stamp = tuple[tuple[int, int, int], ...]


class BuiltTls(NamedTuple):
    """What is built from settings: contexts for clients and other brokers, the rules of principals, the state of the
    files, and a warning.
    """

    settings: TlsSettings
    context: ssl.SSLContext
    peer_context: ssl.SSLContext | None
    mapper: PrincipalMapper
    stamp: Stamp
    warning: str | None = None


class TlsFailure(Exception):
    """Why changed settings or files cannot be used."""

    def __init__(self, text: str, settings: TlsSettings, stamp: Stamp) -> None:
        super().__init__(text)
        self.settings = settings
        self.stamp = stamp


class ServerTls:
    """The TLS side of a listener.

    Arguments:
        settings: of the listener; its stores are read at once.
        dials: it is the listener between brokers of a cluster: `peer_context` returns a context.

    Raises:
        ValueError: a store cannot be used, or a rule does not parse; the text names the key.
    """

    def __init__(self, settings: TlsSettings, *, dials: bool = False) -> None:
        self._dials = dials
        self._built = build_server_tls(settings, dials=dials)
        self._failed: tuple[TlsSettings, Stamp] | None = None
        if self._built.warning is not None:
            LOGGER.warning("%s", self._built.warning)

    def get(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        return self._built.context

    def peer_context(self) -> ssl.SSLContext:
        """Return the context for the next connection to another broker."""
        assert self._built.peer_context is not None
        return self._built.peer_context

    def principal(self, ssl_object: ssl.SSLObject) -> Principal | None:
        """Return the principal of a client by its certificate; ANONYMOUS without one.

        Raises:
            ValueError: no rule applies to the name in the certificate.
        """
        certificate = ssl_object.getpeercert(True)
        if not certificate:
            return ANONYMOUS
        return Principal(USER, self._built.mapper.name_of(distinguished_name(certificate)))

    def refresh(self, settings: TlsSettings) -> Callable[[], BuiltTls | TlsFailure | None]:
        """Return a job that builds what has changed in settings and files; its result is for `apply`."""
        before, failed, dials = self._built, self._failed, self._dials

        def job() -> BuiltTls | TlsFailure | None:
            try:
                stamp = _stamp(settings)
            except OSError as error:
                stamp = ((-1, error.errno or 0, 0),)
            if (settings, stamp) in ((before.settings, before.stamp), failed):
                return None
            try:
                built = build_server_tls(settings, dials=dials)
            except ValueError as error:
                return TlsFailure(str(error), settings, stamp)
            return built if built.warning is None else TlsFailure(built.warning, settings, stamp)

        return job

    def apply(self, built: BuiltTls | TlsFailure | None) -> None:
        """Use the result of a `refresh` job for new connections, or report why the previous certificate stays."""
        if isinstance(built, TlsFailure):
            self._failed = built.settings, built.stamp
            LOGGER.error("%s: the previous certificate of the listener stays in use", built)
        elif built is not None:
            self._built, self._failed = built, None
            LOGGER.info("%s*: new connections use the changed certificate", built.settings.prefix)


def build_server_tls(settings: TlsSettings, *, dials: bool = False) -> BuiltTls:
    """Return the contexts of a listener and the rules of principals.

    Arguments:
        settings: of the listener.
        dials: with a context for connections to other brokers.

    Raises:
        ValueError: a store cannot be used, or a rule does not parse; the text names the key.
    """
    store, prefix = settings.key_store, settings.prefix
    if store is None:
        raise ValueError(f"{prefix}ssl.keystore.location is not set: a listener with TLS needs a key and a certificate")
    try:
        mapper = PrincipalMapper(settings.mapping_rules)
    except ValueError as error:
        raise ValueError(f"{prefix}ssl.principal.mapping.rules: {error}") from None
    stamp = _stamp_or_zeros(settings)
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, settings)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 1  # as Java's TLS; the second one of OpenSSL costs 40 us of each handshake
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    validity = load_key(context, store, prefix)
    if settings.client_auth != "none":
        load_trusted(context, settings.trust_store, prefix, ssl.Purpose.CLIENT_AUTH)
    reason = validity_error(validity)
    peers = build_peer_context(settings) if dials else None
    return BuiltTls(
        settings, context, peers, mapper, stamp, None if reason is None else f"{prefix}ssl.keystore: {reason}"
    )


def build_peer_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context for connections to other brokers: they verify the broker, and present the own certificate.

    Raises:
        ValueError: a store cannot be used; the text names the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _configure(context, settings)
    context.check_hostname = settings.check_hostname
    load_trusted(context, settings.trust_store, settings.prefix, ssl.Purpose.SERVER_AUTH)
    if settings.key_store is not None:
        load_key(context, settings.key_store, settings.prefix)
    return context


def _configure(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = [VERSIONS[each] for each in settings.versions] or list(VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, each certificate of the store is trusted
    if settings.cipher_suites:
        try:
            use_cipher_suites(context, settings.cipher_suites)
        except ValueError as error:
            raise ValueError(f"{settings.prefix}ssl.cipher.suites: {error}") from None


def _stamp(settings: TlsSettings) -> Stamp:
    stores = (settings.key_store, settings.trust_store)
    return tuple(stamp_of(store.location) for store in stores if store is not None)


def _stamp_or_zeros(settings: TlsSettings) -> Stamp:
    try:
        return _stamp(settings)
    except OSError:
        return ()  # the store is reported when it is read
