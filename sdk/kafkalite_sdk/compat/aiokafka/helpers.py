"""aiokafka's helper for TLS."""

import ssl
from collections.abc import Callable
from os import PathLike

Path = str | bytes | PathLike[str] | PathLike[bytes]


def create_ssl_context(
    *,
    cafile: Path | None = None,
    capath: Path | None = None,
    cadata: str | bytes | None = None,
    certfile: Path | None = None,
    keyfile: Path | None = None,
    password: Callable[[], str | bytes | bytearray] | str | bytes | bytearray | None = None,
) -> ssl.SSLContext:
    """Return a context that checks host names.

    Arguments:
        cafile, capath, cadata: certificates of authorities, as `SSLContext.load_verify_locations`; none = the system's.
        certfile, keyfile, password: the client's certificate, as `SSLContext.load_cert_chain`.
    """
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=cafile, capath=capath, cadata=cadata)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
