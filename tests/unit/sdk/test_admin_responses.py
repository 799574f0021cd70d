"""Responses of brokers that the administration does not expect: too few results, unknown numbers, wrong assignments."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kafkalite_sdk.admin import acls
from kafkalite_sdk.admin.acls import Acl, AclFilter, AclOperation, AclResource, Pattern, Permission
from kafkalite_sdk.admin.configs import ConfigSource, ResourceType
from kafkalite_sdk.admin.groups import Groups
from kafkalite_sdk.admin.outcomes import Outcomes
from kafkalite_sdk.admin.users import NewCredential, ScramMechanism, UserMechanism, Users

from kafkalite.errors import DecodeError, KafkaErrorCode, error_for
from kafkalite.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kafkalite.protocol.messages.create_acls import CreateAclsResponse
from kafkalite.protocol.messages.delete_acls import DeleteAclsResponse
from kafkalite.protocol.messages.describe_groups import DescribeGroupsResponse

ACLS = [Acl(AclResource.TOPIC, name, "User:alice", AclOperation.READ) for name in ("orders", "payments")]
FILTERS = [AclFilter(name=name) for name in ("orders", "payments")]
Described = DescribeGroupsResponse.DescribedGroup


def test_results_that_are_missing_leave_their_resources_without_an_outcome() -> None:
    created = CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult(error_code=0)])
    assert list(acls._created(created, ACLS)) == [(ACLS[0], None)]
    deleted = DeleteAclsResponse(
        filter_results=[DeleteAclsResponse.DeleteAclsFilterResult(error_code=0, matching_acls=[])]
    )
    assert list(acls._deleted(deleted, FILTERS)) == [(FILTERS[0], ())]


@pytest.mark.parametrize(
    "numbers", [AclResource, Pattern, AclOperation, Permission, ResourceType, ConfigSource, ScramMechanism]
)
def test_numbers_of_a_newer_broker_are_unknown_and_other_values_are_errors(numbers: Any) -> None:
    assert numbers(99) is numbers.UNKNOWN
    with pytest.raises(ValueError, match="'99' is not a valid"):
        numbers("99")


def test_a_malformed_assignment_is_an_error_of_its_group_only() -> None:
    def group(name: str, assignment: bytes) -> Described:
        member = Described.DescribedGroupMember(
            member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=assignment
        )
        return Described(
            error_code=0,
            group_id=name,
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=[member],
        )

    driver: Any = SimpleNamespace(coordinator=lambda _: 1)
    response = DescribeGroupsResponse(groups=[group("bad", b"\0\0\xff"), group("good", b"")])
    found = dict(Groups(driver)._classic_groups(response, None))
    assert isinstance(found["bad"], DecodeError)
    assert [each.member_id for each in found["good"].members] == ["m"]  # type: ignore[union-attr]


@pytest.mark.parametrize("iterations", [4095, 16_385])
def test_iterations_outside_the_limits_are_errors(iterations: int) -> None:
    with pytest.raises(ValueError, match=f"{iterations} iterations, expected 4096 to 16384"):
        NewCredential("secret", iterations)


async def test_credentials_are_hashed_in_a_thread_and_sent_with_their_user() -> None:
    threads, requests = set(), []

    class Credential(NewCredential):
        """A credential that records the thread that reads its password."""

        def __getattribute__(self, name: str) -> Any:
            if name == "password":
                threads.add(threading.current_thread())
            return super().__getattribute__(name)

    async def run(operation: Any, users: Any, _timeout: object) -> Outcomes[str, None]:
        requests.extend(operation.build([user]) for user in users)
        return Outcomes(dict.fromkeys(users))

    driver: Any = SimpleNamespace(run=run, in_thread=asyncio.to_thread, countdown=lambda _: lambda: 1.0)
    keys = [UserMechanism(user, ScramMechanism.SCRAM_SHA_256) for user in ("alice", "bob")]
    await Users(driver).alter({keys[0]: Credential("secret", 4096), keys[1]: None})
    (alice, bob) = requests
    assert isinstance(alice, AlterUserScramCredentialsRequest) and threading.main_thread() not in threads
    assert ([each.name for each in alice.upsertions], alice.deletions) == (["alice"], [])
    assert ([each.name for each in bob.deletions], bob.upsertions) == (["bob"], [])
    with pytest.raises(ValueError, match=r"user alice: the mechanism is <ScramMechanism\.UNKNOWN: 0>"):
        await Users(driver).alter({UserMechanism("alice", ScramMechanism.UNKNOWN): None})


async def test_mechanisms_of_a_user_are_changed_by_one_request_each() -> None:
    """Kafka with KRaft rejects two changes of a user in one request; an error ends the changes of its user."""
    sent: list[Any] = []

    async def run(operation: Any, users: Any, _timeout: object) -> Outcomes[str, None]:
        request = operation.build(list(users))
        changes = request.upsertions, request.deletions
        sent.append([[(each.name, each.mechanism) for each in part] for part in changes])
        rejected = error_for(KafkaErrorCode.UNACCEPTABLE_CREDENTIAL)
        return Outcomes({user: rejected if user == "bob" else None for user in users})

    driver: Any = SimpleNamespace(run=run, in_thread=asyncio.to_thread, countdown=lambda _: lambda: 1.0)
    sha_256, sha_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    new = NewCredential("secret", 4096)
    changes = {UserMechanism(user, each): new for user in ("alice", "bob") for each in (sha_256, sha_512)}
    by_number: Any = 2  # of SCRAM-SHA-512
    outcomes = await Users(driver).alter({**changes, UserMechanism("carol", by_number): None})
    assert sent == [
        [[("alice", sha_256), ("bob", sha_256)], []],
        [[("alice", sha_512)], [("carol", sha_512)]],
    ]
    assert (outcomes.results, list(outcomes.errors)) == ({"alice": None, "carol": None}, ["bob"])
