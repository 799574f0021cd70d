"""The names of the states of a transaction in requests (TransactionState.java)."""

from kafkalite.state.transactions.states import TransactionState

STATE_NAMES = {state: state.name.title().replace("_", "") for state in TransactionState}
"""As in ListTransactions and DescribeTransactions: `PrepareCommit`, for example."""
TRANSIENT = frozenset(("Dead", "PrepareEpochFence"))
"""States of Kafka that no transaction here ever has; as filters they are known and match none."""
