"""The settings of transactions, from the broker's configuration."""

from kafkalite.config.broker import BrokerConfig
from kafkalite.state.transactions.machine import TransactionSettings


def machine_settings(config: BrokerConfig) -> TransactionSettings:
    """The settings of the machines of `__transaction_state`."""
    return TransactionSettings(
        timeout_max_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
    )
