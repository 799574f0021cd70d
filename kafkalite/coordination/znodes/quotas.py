"""Nodes of client quotas, below `/config/users`, `/config/clients` and `/config/ips` (ZkData.scala, KIP-55, KIP-546).

The names in the paths are sanitized; those of the default are `<default>`. The node of a user may also have SCRAM
credentials. A node above another one may have no data.

Source: Sanitizer.java, ConfigEntityZNode of Apache Kafka 3.9.
"""

from urllib.parse import quote, unquote

from kafkalite.coordination.znodes import CLIENT_CONFIGS, IP_CONFIGS, USER_CONFIGS, decode_configs

DEFAULT = "<default>"


def node_name(name: str | None) -> str:
    """The name in the path of a node; None = the default."""
    return DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")


def name_of(node: str) -> str | None:
    """The name that this node stands for, None = the default."""
    return None if node == DEFAULT else unquote(node)


def user_path(user: str | None) -> str:
    """Node of a user's quotas."""
    return f"{USER_CONFIGS}/{node_name(user)}"


def user_clients_path(user: str | None) -> str:
    """Node above those of a user's clients."""
    return f"{user_path(user)}/clients"


def user_client_path(user: str | None, client_id: str | None) -> str:
    """Node of the quotas of a client id of a user."""
    return f"{user_clients_path(user)}/{node_name(client_id)}"


def client_path(client_id: str | None) -> str:
    """Node of a client id's quotas."""
    return f"{CLIENT_CONFIGS}/{node_name(client_id)}"


def ip_path(ip: str | None) -> str:
    """Node of an address's quotas."""
    return f"{IP_CONFIGS}/{node_name(ip)}"


def decode_quotas(path: str, data: bytes) -> dict[str, str]:
    """All settings of the node, none without data; raises ZnodeError."""
    return decode_configs(path, data) if data else {}
