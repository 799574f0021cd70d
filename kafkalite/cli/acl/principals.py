"""Principals and addresses in options of commands for ACLs and tokens."""

from ipaddress import ip_address

from kafkalite.cli.failure import fail

ALL_HOSTS = "*"


def principal_of(text: str) -> str:
    """Return a principal with its type, `alice` is `User:alice`; ends the command if the type or the name is empty."""
    principal = text if ":" in text else f"User:{text}"
    kind, _, name = principal.partition(":")
    if not kind or not name:
        fail(f"the principal is {text!r}, expected a user such as alice, or TYPE:NAME")
    return principal


def client_address(text: str) -> str:
    """Return the address of an ACL; ends the command for anything else.

    Brokers compare the text of an ACL with the address of a connection: a host name, or a network, applies to none.
    """
    if text == ALL_HOSTS:
        return text
    try:
        ip_address(text)
    except ValueError:
        fail(f"--host {text!r} is not an IP address; ACLs know no host names and no networks, * is all addresses")
    return text
