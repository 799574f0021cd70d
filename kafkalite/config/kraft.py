"""Keys of KRaft in a configuration file of Kafka 4: one process that is broker and controller becomes a single broker.

Such a file starts here without a change. The listeners of the controller are not served, as the coordination of one
broker needs none; a quorum of several processes is refused, as this broker alone would not have their topics.
"""

from collections.abc import Mapping, Sequence

from kafkalite.config.keys import ConfigError, Value

QUORUMS = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


def check_quorum(static: Mapping[str, str], values: Mapping[str, Value]) -> None:
    """Raise ConfigError, with the lines to drop, unless the quorum is this process alone or there is none.

    Arguments:
        static: texts of the file, the environment and the command line.
        values: the values of all keys.
    """
    roles = members(values["process.roles"])
    if roles and "broker" not in roles:
        raise refused(static, "process.roles", "process.roles lacks broker: a controller alone serves no clients")
    for key in QUORUMS:
        controllers = members(values[key])
        if len(controllers) > 1:
            raise refused(static, key, f"{key} names {len(controllers)} controllers, this version runs one broker")
        if controllers and "controller" not in roles:
            reason = f"{key} is {controllers[0]}, and process.roles does not make this process the controller"
            raise refused(static, key, reason)
        if controllers and not is_own(controllers[0], values):
            raise refused(static, key, f"{key} is {controllers[0]}, which is not a controller listener of this process")


def members(value: Value) -> tuple[str, ...]:
    """The members of a list, none of an unset one."""
    return tuple(filter(None, value)) if isinstance(value, tuple) else ()


def is_own(controller: str, values: Mapping[str, Value]) -> bool:
    """Whether HOST:PORT or ID@HOST:PORT has the port of a listener of the controller, and this process's id."""
    node, at, address = controller.rpartition("@")
    if at and node != str(values["node.id"]):
        return False
    port = address.rpartition(":")[2]
    names = controller_listeners(values)
    own = [entry for entry in members(values["listeners"]) if listener_name(entry) in names]
    return any(entry.rpartition(":")[2] == port for entry in own)


def controller_listeners(values: Mapping[str, Value]) -> frozenset[str]:
    """Names of the listeners that a KRaft controller would serve."""
    names = values["controller.listener.names"]
    return listed(names if isinstance(names, str) else "")


def listed(names: str) -> frozenset[str]:
    """The names in a text with commas between them, in capitals."""
    return frozenset(name.strip().upper() for name in names.split(",") if name.strip())


def controller_entries(static: Mapping[str, str]) -> tuple[str, ...]:
    """The entries of `listeners` that are the controller's, by the texts of a configuration.

    `serve --listen` replaces the listeners of the broker; these identify the quorum as this process.
    """
    names = listed(static.get("controller.listener.names", ""))
    entries = (entry.strip() for entry in static.get("listeners", "").split(","))
    return tuple(entry for entry in entries if listener_name(entry) in names)


def listener_name(entry: str) -> str:
    """The name in `NAME://HOST:PORT`."""
    return entry.partition("://")[0].strip().upper()


def of_brokers(entries: Sequence[str], values: Mapping[str, Value]) -> tuple[str, ...]:
    """The entries of `listeners` or `advertised.listeners` that are not the controller's."""
    names = controller_listeners(values)
    return tuple(entry for entry in entries if listener_name(entry) not in names)


def refused(static: Mapping[str, str], key: str, reason: str) -> ConfigError:
    """The error that names the lines to drop."""
    lines = [f"{name}={static[name]}" for name in ("process.roles", *QUORUMS) if name in static]
    return ConfigError(key, f"{reason}; to start a single broker, drop the lines: {'  '.join(lines)}")
