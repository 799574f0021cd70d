"""Which requests of controllers are accepted: epochs of controllers and of this broker, and ids of controllers."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.cluster.controller.fence import ControllerFence
from kafkalite.errors import KafkaErrorCode as Error


def request(controller: int = 1, epoch: int = 5, broker_epoch: int = 10, kraft: bool = False) -> Any:
    return SimpleNamespace(
        controller_id=controller, controller_epoch=epoch, broker_epoch=broker_epoch, is_kraft_controller=kraft
    )


@pytest.fixture
def fence() -> ControllerFence:
    fence = ControllerFence()
    fence.registered(10)
    fence.tree_epoch_read(5)
    assert fence.accept(request())[0] == 0
    fence.tree_epoch_read(9)
    return fence


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request(), Error.NONE),
        (request(epoch=6, controller=2), Error.NONE),
        (request(epoch=4), Error.STALE_CONTROLLER_EPOCH),
        (request(controller=2), Error.STALE_CONTROLLER_EPOCH),
        (request(broker_epoch=9), Error.STALE_BROKER_EPOCH),
        (request(broker_epoch=9, epoch=4), Error.STALE_BROKER_EPOCH),
        (request(broker_epoch=11), Error.STALE_BROKER_EPOCH),
        (request(broker_epoch=-1), Error.STALE_BROKER_EPOCH),
        (request(epoch=10), Error.STALE_CONTROLLER_EPOCH),
        (request(kraft=True), Error.INVALID_REQUEST),
        (request(controller=-1), Error.INVALID_REQUEST),
    ],
)
def test_requests_are_fenced(fence: ControllerFence, asked: Any, error: Error) -> None:
    found, reason = fence.accept(asked)
    assert found == error
    assert bool(reason) == bool(error)


def test_rejected_request_changes_nothing(fence: ControllerFence) -> None:
    fence.accept(request(controller=2, epoch=9, broker_epoch=1))
    assert (fence.controller_id, fence.controller_epoch) == (1, 5)
    fence.accept(request(controller=2, epoch=9))
    assert (fence.controller_id, fence.controller_epoch) == (2, 9)
    assert fence.accept(request())[0] == Error.STALE_CONTROLLER_EPOCH, "the old controller returns"


def test_requests_for_the_registration_before_are_stale(fence: ControllerFence) -> None:
    fence.registered(20)
    fence.tree_epoch_read(5)
    assert fence.accept(request(broker_epoch=10))[0] == Error.STALE_BROKER_EPOCH
    assert fence.accept(request(broker_epoch=20))[0] == Error.NONE


def test_a_registration_begins_with_the_controller_epoch_of_the_tree(fence: ControllerFence) -> None:
    """Also if it is lower than before: an older tree was restored. A controller of an earlier epoch is rejected."""
    fence.unregistered()
    fence.registered(20)
    restored = request(epoch=3, controller=2, broker_epoch=20)
    assert fence.needs_tree_epoch(restored)
    fence.tree_epoch_read(3)
    assert fence.accept(request(epoch=2, broker_epoch=20))[0] == Error.STALE_CONTROLLER_EPOCH
    assert fence.accept(restored)[0] == Error.NONE


@pytest.mark.parametrize("broker_epoch", [-1, 0, 10, 2**62])
def test_no_request_is_accepted_before_the_registration_nor_after_its_end(broker_epoch: int) -> None:
    fence = ControllerFence()
    fence.tree_epoch_read(5)
    assert fence.accept(request(broker_epoch=broker_epoch))[0] == Error.STALE_BROKER_EPOCH
    fence.registered(10)
    fence.unregistered()
    assert fence.accept(request(broker_epoch=broker_epoch))[0] == Error.STALE_BROKER_EPOCH
    assert fence.controller_epoch == -1


def test_the_tree_is_read_for_a_new_epoch_of_a_request_that_is_accepted_otherwise(fence: ControllerFence) -> None:
    assert not fence.needs_tree_epoch(request(epoch=9, controller=2))
    assert fence.needs_tree_epoch(request(epoch=10, controller=2))
    assert not fence.needs_tree_epoch(request(epoch=10, controller=2, broker_epoch=9))
    fence.tree_epoch_read(10)
    fence.tree_epoch_read(8)
    assert fence.accept(request(epoch=10, controller=2))[0] == Error.NONE
