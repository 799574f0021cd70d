"""Runs user-defined SASL mechanisms: a mistake of one ends the login, as a wrong password does.

A mechanism is an entry point of the group `kafkalite.sasl_mechanisms` with the name that clients select: a callable
that receives the texts of the configuration and returns a `net.sasl.steps.ServerMechanism`.
"""

from collections.abc import Mapping
from typing import Any

from kafkalite.config.extensions.entry_points import MECHANISMS, entry_points_of
from kafkalite.errors import AuthenticationError
from kafkalite.net.sasl.steps import Authenticated, Job, ServerMechanism, ServerSteps
from kafkalite.rate_limited_log import site_of


class UserMechanism:
    """Checks the steps of a user-defined mechanism.

    Arguments:
        name: of its entry point.
        mechanism: of the package.
    """

    def __init__(self, name: str, mechanism: ServerMechanism) -> None:
        self.name = name
        self._mechanism = mechanism

    def begin(self, message: bytes) -> ServerSteps:
        steps: ServerSteps | None = None
        value: Any = None
        while True:
            try:
                steps = self._mechanism.begin(message) if steps is None else steps
                step = steps.send(value)
            except StopIteration as end:
                return self._checked(end.value)
            except AuthenticationError:
                raise
            except Exception as error:  # whatever the package raises; its text may have secrets
                raise AuthenticationError(f"mechanism {self.name} has raised {site_of(error)}") from error
            if not isinstance(step, bytes | Job):
                raise AuthenticationError(f"mechanism {self.name} yields a {type(step).__name__}, not bytes or a Job")
            value = yield step

    def _checked(self, result: object) -> Authenticated:
        if not isinstance(result, Authenticated) or not isinstance(result.name, str) or not result.name:
            raise AuthenticationError(f"mechanism {self.name} returns no Authenticated with the name of a user")
        return result


def user_mechanism(name: str, texts: Mapping[str, str]) -> UserMechanism:
    """Create the mechanism of an entry point. Raises ValueError.

    Arguments:
        name: of the entry point, which is that of the mechanism.
        texts: of the configuration.
    """
    try:
        created: Any = entry_points_of(MECHANISMS)[name].load()(dict(texts))
    except Exception as error:  # whatever the package raises
        raise ValueError(f"{MECHANISMS}: {name} cannot be created: {error!r}") from error
    if getattr(created, "name", None) != name or not callable(getattr(created, "begin", None)):
        raise ValueError(f"{MECHANISMS}: {name}: {created!r} has no name {name!r} and begin(message)")
    return UserMechanism(name, created)
