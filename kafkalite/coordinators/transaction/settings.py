"""The settings of transactions, from the broker's configuration."""

from typing import NamedTuple

from kafkalite.config.broker import BrokerConfig
from kafkalite.state.transactions.machine import TransactionSettings


class CheckSettings(NamedTuple):
    """How the leader of a partition asks the coordinator of a transaction.

    Arguments:
        is_verifying: `transaction.partition.verification.enable`, dynamic: whether batches of clients that add their
            partitions themselves (TV1) are verified.
        retry_ms: `add.partitions.to.txn.retry.backoff.ms`: the pause after CONCURRENT_TRANSACTIONS.
        retry_max_ms: `add.partitions.to.txn.retry.backoff.max.ms`: how long a batch waits for its partition.
    """

    is_verifying: bool
    retry_ms: int
    retry_max_ms: int


def machine_settings(config: BrokerConfig) -> TransactionSettings:
    """The settings of the machines of `__transaction_state`."""
    return TransactionSettings(
        timeout_max_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
    )


def check_settings(config: BrokerConfig) -> CheckSettings:
    """The settings of verification and implicit adding; read again after a change of configs."""
    return CheckSettings(
        config.transaction_partition_verification_enable,
        config.add_partitions_to_txn_retry_backoff_ms,
        config.add_partitions_to_txn_retry_backoff_max_ms,
    )
