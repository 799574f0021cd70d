"""Creates the authorizer that the configuration names."""

from kafkalite.clock import Clock
from kafkalite.cluster.acls.store import AclStore
from kafkalite.config.authorizer import BUILT_IN, NAME_KEY, installed_authorizers
from kafkalite.config.broker import BrokerConfig
from kafkalite.coordination.backend import Coordination
from kafkalite.server.security.authorization import AuditedAuthorizer
from kafkalite.state.authorizer.interface import Authorizer
from kafkalite.state.authorizer.standard import StandardAuthorizer


def create_authorizer(config: BrokerConfig, session: Coordination, clock: Clock, *, notify: bool) -> AuditedAuthorizer:
    """Create the authorizer of a broker; its ACLs are not read yet.

    Arguments:
        config: names it.
        session: with the coordination service, which stores the ACLs.
        clock: of the broker.
        notify: whether other brokers are notified of changes.

    Raises ValueError: a user-defined one cannot be created.
    """
    name = config.authorizer_class_name
    if name not in BUILT_IN:
        return AuditedAuthorizer(user_defined(name, config), clock)
    standard = StandardAuthorizer(config.super_users, allow_everyone=config.allow_everyone_if_no_acl_found)
    return AuditedAuthorizer(standard, clock, AclStore(session, standard, clock, notify=notify))


def user_defined(name: str, config: BrokerConfig) -> Authorizer:
    """Create the authorizer of an entry point. Raises ValueError."""
    try:
        created: Authorizer = installed_authorizers()[name].load()(dict(config.static))
    except Exception as error:  # whatever the package raises
        raise ValueError(f"{NAME_KEY}: {name} cannot be created: {error!r}") from error
    missing = [each for each in ("version", "decide", "allows_any") if not hasattr(created, each)]
    if missing:
        raise ValueError(f"{NAME_KEY}: {name}: {created!r} is no authorizer: it has no {', '.join(missing)}")
    return created
