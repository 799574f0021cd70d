"""aiokafka's abstract classes: listeners of rebalances and providers of tokens."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping

from kafkalite.model import TopicPartition


class ConsumerRebalanceListener(ABC):
    """Callbacks for changes of the assignment; methods are plain or async."""

    @abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Partitions are taken away. Commit here what was processed."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """The group has assigned partitions; all that the member has now."""


class AbstractTokenProvider(ABC):
    """Provides the tokens of SASL/OAUTHBEARER."""

    @abstractmethod
    async def token(self) -> str:
        """Return a valid token."""

    def extensions(self) -> Mapping[str, str]:
        """Return SASL extensions by name."""
        return {}
