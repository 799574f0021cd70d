"""Addresses of HTTP services: the user name and password are taken out, so that no message contains them."""

from urllib.parse import unquote, urlsplit, urlunsplit

from kafkalite.model import shown_address


def without_userinfo(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return an address without user name and password, and these.

    Arguments:
        url: such as "https://user:password@registry:8081/path".

    Raises:
        ValueError: it is no address of HTTP; the message does not contain it.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the address of a service is not valid, expected http://HOST:PORT or https://HOST:PORT")
    address = urlunsplit(parts._replace(netloc=shown_address(parts.netloc)))
    if parts.username is None:
        return address, None
    return address, (unquote(parts.username), unquote(parts.password or ""))
