"""Addresses as Java writes them."""

from ipaddress import IPv6Address, ip_address


def java_address(host: str) -> str:
    """Return an address as InetAddress.getHostAddress does, with which Kafka compares the hosts of ACLs.

    IPv6 has eight groups without leading zeros, such as `0:0:0:0:0:0:0:1`; an IPv4 address in IPv6 is written as IPv4.
    Other text stays as it is.
    """
    if ":" not in host:
        return host
    address, percent, zone = host.partition("%")
    try:
        parsed = ip_address(address)
    except ValueError:
        return host
    if not isinstance(parsed, IPv6Address):
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + zone
