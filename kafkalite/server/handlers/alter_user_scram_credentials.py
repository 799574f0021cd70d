"""AlterUserScramCredentials, key 51, v0: sets and deletes SCRAM credentials of users (KIP-554).

Any broker writes them. All changes of a user are written together, or none. The node has what verifies a password and
proves the broker, not the salted password of the request, which would suffice for a login.

Deviation: salts and salted passwords of a wrong length are rejected with UNACCEPTABLE_CREDENTIAL.

Source: ZkAdminManager.alterUserScramCredentials of Apache Kafka 3.9, ScramControlManager of 4.3.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from kafkalite.callbacks import FanIn
from kafkalite.cluster.changes import Refusal, RefusedError
from kafkalite.cluster.configs.client_quotas import entity_of
from kafkalite.cluster.configs.quota_writes import QuotaChange
from kafkalite.cluster.credentials.mechanisms import MECHANISMS
from kafkalite.cluster.credentials.texts import encode_credential
from kafkalite.errors import KafkaErrorCode
from kafkalite.net.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, credential_of, digest_size
from kafkalite.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kafkalite.server.requests.call import UserCall

OBJECTS_EACH = 10  # a change takes some 100 us
SALT_BYTES_MAX = 1_024

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Texts: TypeAlias = dict[str, str | None]
TWICE = "A user credential cannot be altered twice in the same request"
MISSING = "Attempt to delete a user credential that does not exist"


class UserChange(NamedTuple):
    """The changes of one user: the new text of each mechanism, None = it is deleted."""

    user: str
    texts: Texts

    def __str__(self) -> str:
        """The changes without the credentials, such as `alice: SCRAM-SHA-256 set`."""
        changes = (f"{mechanism} {'deleted' if text is None else 'set'}" for mechanism, text in self.texts.items())
        return f"{self.user}: {', '.join(changes)}"

    def check(self, before: Mapping[str, str]) -> Refusal | None:
        """Return why the settings of the user do not allow the change."""
        if all(text is not None or mechanism in before for mechanism, text in self.texts.items()):
            return None
        return Refusal(KafkaErrorCode.RESOURCE_NOT_FOUND, MISSING)


def alter_user_scram_credentials(call: UserCall, request: AlterUserScramCredentialsRequest) -> None:
    """Change each user on its own; the response is sent when all changes are durable."""
    asked: dict[str, list[Deletion | Upsertion]] = defaultdict(list)
    changes: list[Deletion | Upsertion] = [*request.deletions, *request.upsertions]
    for each in changes:
        asked[each.name].append(each)
    users = list(asked)
    outcomes: FanIn[Refusal | None] = FanIn(len(users), call.guard(partial(answer, call, users)))
    steps = alter_each(call, asked, outcomes)
    call.in_slices(steps, OBJECTS_EACH * len(users), lambda _none: None, changes=True)


def alter_each(
    call: UserCall, asked: Mapping[str, list[Deletion | Upsertion]], outcomes: FanIn[Refusal | None]
) -> Generator[None, None, None]:
    for index, (user, changes) in enumerate(asked.items()):
        then = partial(outcomes.put, index)
        try:
            change = UserChange(user, texts_of(user, changes))
        except RefusedError as error:
            then(error.refusal)
        else:
            alter(call, change, then)
        yield


def alter(call: UserCall, change: UserChange, then: Callable[[Refusal | None], None]) -> None:
    """Write the changes of a user, and apply them to the logins at this broker."""
    context = call.context

    def written(refusal: Refusal | None) -> None:
        if refusal is None:
            call.log_change(context.audit_log, "changed", "user", str(change))
            if context.credentials is not None:
                context.credentials.change(change.user, change.texts)
        then(refusal)

    entity = entity_of([("user", change.user)])
    QuotaChange(
        context.metadata, entity, change.texts, notify=context.in_cluster, then=written, check=change.check
    ).start()


def texts_of(user: str, changes: list[Deletion | Upsertion]) -> Texts:
    """Return the new texts of a user; raises RefusedError."""
    if not user:
        raise unacceptable("Username must not be empty")
    if unknown := [each.mechanism for each in changes if each.mechanism not in MECHANISMS]:
        raise RefusedError(KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM, f"Unknown SCRAM mechanism {unknown[0]}")
    if max(Counter(each.mechanism for each in changes).values()) > 1:
        raise RefusedError(KafkaErrorCode.DUPLICATE_RESOURCE, TWICE)
    try:
        entity_of([("user", user)])
    except RefusedError as error:
        raise unacceptable(error.refusal.message or "") from error
    return {MECHANISMS[each.mechanism]: text_of(each) for each in changes}


def text_of(change: Deletion | Upsertion) -> str | None:
    """Return the text of a new credential, None for a deletion; raises RefusedError."""
    if isinstance(change, Deletion):
        return None
    if change.iterations < ITERATIONS_MIN:
        raise unacceptable("Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise unacceptable("Too many iterations")
    mechanism, salt, salted = MECHANISMS[change.mechanism], bytes(change.salt), bytes(change.salted_password)
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise unacceptable(f"A salt of {len(salt)} bytes, expected 1 to {SALT_BYTES_MAX}")
    if len(salted) != digest_size(mechanism):
        raise unacceptable(f"A salted password of {len(salted)} bytes, expected {digest_size(mechanism)}")
    return encode_credential(credential_of(mechanism, salted, salt, change.iterations))


def unacceptable(text: str) -> RefusedError:
    """The error of a credential that no broker may store."""
    return RefusedError(KafkaErrorCode.UNACCEPTABLE_CREDENTIAL, text)


def answer(call: UserCall, users: list[str], outcomes: list[Refusal | None]) -> None:
    """Send the result of each user."""
    call.answer_from(build_response(call, users, outcomes), len(users))


def build_response(
    call: UserCall, users: list[str], outcomes: list[Refusal | None]
) -> Generator[None, None, AlterUserScramCredentialsResponse]:
    results = call.elements()
    for user, refusal in zip(users, outcomes, strict=True):
        error, message = (refusal.error, refusal.message) if refusal else (0, None)
        results.add(Result(user=user, error_code=error, error_message=message))
        yield
    return AlterUserScramCredentialsResponse(results=results.finish())
