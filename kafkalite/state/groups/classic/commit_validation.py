"""Decides whether a member of a classic group may commit the partitions of a request."""

from typing import NamedTuple

from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition


class ClassicCommitValidation(NamedTuple):
    """The validation of a commit: `code` is the error of all partitions. Without an error, `rewound` are the partitions
    that were rewound in the current generation: their commits are rejected.
    """

    code: int
    rewound: frozenset[TopicPartition] = frozenset()

    @property
    def uniform(self) -> bool:
        """Whether all partitions have the same result: none was rewound."""
        return not self.rewound

    def of_partition(self, topic_id: bytes, partition: int, topic: str = "") -> int:
        """The error of one partition."""
        if self.rewound and not self.code and (topic, partition) in self.rewound:
            return KafkaErrorCode.ILLEGAL_GENERATION
        return self.code


COMMIT_ACCEPTED = ClassicCommitValidation(KafkaErrorCode.NONE)
