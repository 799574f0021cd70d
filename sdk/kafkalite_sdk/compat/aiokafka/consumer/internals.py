"""The internal objects of aiokafka's consumer that programs read."""

from kafkalite_sdk.compat.aiokafka.background import GrouplessSubscription
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.membership.settings import MemberIdentity


class Coordinator:
    """The member of the group, as `consumer._coordinator`.

    Arguments:
        driver: of the consumer.
        group_id: None = the consumer has no group.
    """

    def __init__(self, driver: AnyDriver, group_id: str | None) -> None:
        self.group_id = group_id
        self._driver = driver

    @property
    def member_id(self) -> str:
        """The member id in the group, "" = not a member."""
        group = self._driver.group
        identity: MemberIdentity | None = None if group is None else group.membership.identity()
        return "" if identity is None else identity.member_id


class SubscriptionState:
    """The topics, as `consumer._subscription`.

    Arguments:
        driver: of the consumer.
        groupless: the subscription of a consumer without a group, else None.

    Attributes:
        names: subscribed topics; empty with a pattern.
    """

    def __init__(self, driver: AnyDriver, groupless: GrouplessSubscription | None) -> None:
        self.names: frozenset[str] = frozenset()
        self._driver = driver
        self._groupless = groupless

    @property
    def topics(self) -> frozenset[str]:
        """Names of the subscribed topics, or those that match the pattern now."""
        if self.names:
            return self.names
        if self._groupless is not None and self._groupless.active:
            return frozenset(self._groupless.names())
        group = self._driver.group
        if group is None or not group.subscribed:
            return frozenset(each.topic for each in self._driver.assignment())
        return group.membership.wanted_topics
