"""The SCRAM credentials of all users in memory, as logins need them.

They are loaded before the broker accepts connections. A change of any broker is applied when its notification in
`/config/changes` is read (`server/configs/dynamic_configs`). A credential that cannot be read does not exist for
logins, and is logged.

Source: CredentialProvider.java, ScramPublisher.scala of Apache Kafka 4.3; DynamicConfigManager of 3.9.
"""

import logging
from collections.abc import Mapping

from kafkalite.cluster.credentials.reads import load_users
from kafkalite.cluster.credentials.texts import decode_credential, decode_credentials
from kafkalite.coordination.backend import Coordination
from kafkalite.net.sasl.scram import HASHES, ScramCredential

LOGGER = logging.getLogger("kafkalite.authentication")


class ScramCredentials:
    """The credentials by mechanism and user."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in HASHES}

    async def load(self, session: Coordination) -> None:
        """Read the users of the cluster. Raises CoordinationError."""
        await load_users(session, self.apply)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user, None if there is none."""
        return self._known[mechanism].get(user)

    def users(self) -> set[str]:
        """Return all users with credentials."""
        return set().union(*self._known.values())

    def change(self, user: str, texts: Mapping[str, str | None]) -> None:
        """Apply a change that this broker has stored: the new text of each mechanism, None = it was deleted."""
        for mechanism, text in texts.items():
            if text is None:
                self._known[mechanism].pop(user, None)
            else:
                self._known[mechanism][user] = decode_credential(text)

    def apply(self, user: str, texts: Mapping[str, str] | None) -> None:
        """Replace the credentials of a user by those among the settings of the user; None = they cannot be read."""
        found, errors = decode_credentials(texts or {})
        for error in errors:
            LOGGER.error("user %r cannot log in by %s", user, error)
        for mechanism, credentials in self._known.items():
            if mechanism in found:
                credentials[user] = found[mechanism]
            else:
                credentials.pop(user, None)
