"""The SCRAM credentials of users: describe, set, delete (KIP-554)."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalite.errors import KafkaError
from kafkalite.net.sasl.salts import new_salt
from kafkalite.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kafkalite.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafkalite_sdk.admin.driver import Driver
from kafkalite_sdk.admin.operation import OpenEnum, Operation, check_result, require
from kafkalite_sdk.admin.outcomes import Outcomes

ITERATIONS, ITERATIONS_MIN, ITERATIONS_MAX = 8192, 4096, 16_384
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


class ScramMechanism(OpenEnum):
    """A SCRAM mechanism (ScramMechanism.java)."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


DIGESTS = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class UserMechanism(NamedTuple):
    """A user and a SCRAM mechanism."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A new password; it is salted here, and never sent as it is.

    Attributes:
        password: text, or the bytes of text that is prepared by SASLprep.
        iterations: 4,096 to 16,384, the limits of Kafka.
        salt: None = a random one in the form of Apache Kafka's tools.

    Raises:
        ValueError: the number of iterations is outside the limits.
    """

    password: str | bytes = field(repr=False)
    iterations: int = ITERATIONS
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            raise ValueError(f"{self.iterations} iterations, expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")


class Users:
    """The users of a cluster that have SCRAM credentials.

    Every method takes `timeout`, a deadline in seconds; None = `default_api_timeout_ms`.

    Arguments:
        driver: sends the requests.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def describe(self, *users: str, timeout: float | None = None) -> Outcomes[str, dict[ScramMechanism, int]]:
        """Return the iterations of each mechanism of users. ResourceNotFoundError: the user has no credentials.

        Arguments:
            users: names; none = all users.

        Raises:
            KafkaError: without names, if they cannot be described.
        """

        def build(names: list[str | None]) -> DescribeUserScramCredentialsRequest:
            user = DescribeUserScramCredentialsRequest.UserName
            wanted = [user(name=name) for name in names if name is not None]
            return DescribeUserScramCredentialsRequest(users=wanted or None)

        if users:
            operation: Operation[str, dict[ScramMechanism, int]] = Operation(
                DescribeUserScramCredentialsRequest, lambda names: build([*names]), _described
            )
            return await self._driver.run(operation, dict.fromkeys(users), timeout)
        all_users: Operation[None, dict[str, dict[ScramMechanism, int] | KafkaError]] = Operation(
            DescribeUserScramCredentialsRequest,
            lambda _: build([]),
            lambda response, _: [(None, dict(_described(response, None)))],
        )
        return Outcomes((await self._driver.run(all_users, [None], timeout))[None])

    async def alter(
        self, changes: Mapping[UserMechanism, NewCredential | None], *, timeout: float | None = None
    ) -> Outcomes[str, None]:
        """Set and delete credentials. A thread hashes the passwords.

        There is one request for each mechanism: Apache Kafka with KRaft rejects two changes of a user in one request
        with DUPLICATE_RESOURCE. After the error of a user its other mechanisms are not changed.

        Arguments:
            changes: of users and mechanisms the new credential, None = delete.
            timeout: of all requests together.

        Returns:
            The first error of each user that has one.

        Raises:
            ValueError: a mechanism is UNKNOWN.
        """
        given = {UserMechanism(*each): change for each, change in changes.items()}
        for unknown in (each for each in given if each.mechanism not in DIGESTS):
            raise ValueError(f"user {unknown.user}: the mechanism is {unknown.mechanism!r}, expected a ScramMechanism")
        left_s = self._driver.countdown(timeout)
        new = {each: change for each, change in given.items() if change is not None}
        salted = await self._driver.in_thread(lambda: {each: _upsertion(each, change) for each, change in new.items()})
        ended: dict[str, KafkaError | None] = {}
        for mechanism in dict.fromkeys(each.mechanism for each in given):
            users = [each.user for each in given if each.mechanism == mechanism and ended.get(each.user) is None]
            outcomes = await self._driver.run(_alteration(mechanism, salted), users, left_s())
            ended |= {**outcomes.results, **outcomes.errors}
        return Outcomes(ended)


def _alteration(mechanism: ScramMechanism, salted: Mapping[UserMechanism, Upsertion]) -> Operation[str, None]:
    """Return the operation that changes a mechanism of users; those without a salted password lose it."""

    def build(users: list[str]) -> AlterUserScramCredentialsRequest:
        keys = [UserMechanism(user, mechanism) for user in users]
        return AlterUserScramCredentialsRequest(
            deletions=[Deletion(name=each.user, mechanism=mechanism) for each in keys if each not in salted],
            upsertions=[salted[each] for each in keys if each in salted],
        )

    return Operation(AlterUserScramCredentialsRequest, build, _altered)


def _described(
    response: DescribeUserScramCredentialsResponse, _: object
) -> Iterator[tuple[str, dict[ScramMechanism, int] | KafkaError]]:
    require(response.error_code, response.error_message)
    for each in response.results:
        mechanisms = {ScramMechanism(one.mechanism): one.iterations for one in each.credential_infos}
        yield each.user, check_result(each.error_code, each.error_message, mechanisms)


def _upsertion(key: UserMechanism, new: NewCredential) -> Upsertion:
    password = new.password.encode() if isinstance(new.password, str) else new.password
    salt = new_salt() if new.salt is None else new.salt
    salted = hashlib.pbkdf2_hmac(DIGESTS[key.mechanism], password, salt, new.iterations)
    return Upsertion(
        name=key.user, mechanism=key.mechanism, iterations=new.iterations, salt=salt, salted_password=salted
    )


def _altered(response: AlterUserScramCredentialsResponse, _: object) -> Iterator[tuple[str, KafkaError | None]]:
    for each in response.results:
        yield each.user, check_result(each.error_code, each.error_message, None)
