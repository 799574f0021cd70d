"""The SCRAM credentials of all users in memory, as logins need them.

They are loaded before the broker accepts connections. A change of any broker is applied when its notification in
`/config/changes` is read (`server/configs/dynamic_configs`).

Invariants:
1. A credential that cannot be read does not exist for logins, and is logged.
2. The number of credentials with each number of iterations is kept with every change, so `usual_iterations` visits no
   users. Numbers outside the limits of SCRAM are not counted: such a user cannot log in, so no client sees them.
3. `salt_secret` is that of the cluster (`credentials/salt_secret`) from `load` on; a random one before.

Source: CredentialProvider.java, ScramPublisher.scala of Apache Kafka 4.3; DynamicConfigManager of 3.9.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Mapping

from kafkalite.clock import Random
from kafkalite.cluster.credentials.reads import load_users
from kafkalite.cluster.credentials.salt_secret import SECRET_BYTES, read_or_create_secret
from kafkalite.cluster.credentials.texts import decode_credential, decode_credentials
from kafkalite.coordination.backend import Coordination
from kafkalite.net.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential

LOGGER = logging.getLogger("kafkalite.authentication")


class ScramCredentials:
    """The credentials by mechanism and user.

    Attributes:
        salt_secret: from which the salts of names without a credential are derived.
    """

    def __init__(self) -> None:
        self.salt_secret = secrets.token_bytes(SECRET_BYTES)
        self._known: dict[str, dict[str, ScramCredential]] = {mechanism: {} for mechanism in HASHES}
        self._iterations: dict[str, Counter[int]] = {mechanism: Counter() for mechanism in HASHES}

    async def load(self, session: Coordination, random: Random) -> None:
        """Read the users of the cluster, and the secret for the salts of other names; `random` draws a missing one.

        Raises: CoordinationError. ZnodeError: the node of the secret is not valid.
        """
        self.salt_secret = await read_or_create_secret(session, random)
        await load_users(session, self.apply)

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user, None if there is none."""
        return self._known[mechanism].get(user)

    def users(self) -> set[str]:
        """Return all users with credentials."""
        return set().union(*self._known.values())

    def usual_iterations(self, mechanism: str) -> int:
        """Return the number of iterations that most users of a mechanism have, which logins of other names show.

        Arguments:
            mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".

        Returns:
            Of two equally frequent numbers the larger one; 4,096, Kafka's default, if the mechanism has no users.
        """
        counts = self._iterations[mechanism]
        return max(counts, key=lambda number: (counts[number], number), default=ITERATIONS_MIN)

    def change(self, user: str, texts: Mapping[str, str | None]) -> None:
        """Apply a change that this broker has stored: the new text of each mechanism, None = it was deleted."""
        for mechanism, text in texts.items():
            self._replace(mechanism, user, None if text is None else decode_credential(text))

    def apply(self, user: str, texts: Mapping[str, str] | None) -> None:
        """Replace the credentials of a user by those among the settings of the user; None = they cannot be read."""
        found, errors = decode_credentials(texts or {})
        for error in errors:
            LOGGER.error("user %r cannot log in by %s", user, error)
        for mechanism in HASHES:
            self._replace(mechanism, user, found.get(mechanism))

    def _replace(self, mechanism: str, user: str, credential: ScramCredential | None) -> None:
        credentials, counts = self._known[mechanism], self._iterations[mechanism]
        former = credentials.pop(user, None)
        if former is not None and former.iterations in counts:
            counts[former.iterations] -= 1
            if not counts[former.iterations]:
                del counts[former.iterations]
        if credential is not None:
            credentials[user] = credential
            if ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
                counts[credential.iterations] += 1
