"""Which of aiokafka's own tests are left out, and why.

The other files of its tests are about internal classes alone: client, connections, coordinator, fetcher, accumulator,
sender, subscription state, protocol, records; about assignors with a mocked cluster. Those about SASL and TLS run where
the broker has listeners for them (`listeners.py`).
"""

MOCKED = "replaces methods of aiokafka's internal objects by mocks, to cause errors"
INTERNAL = "asserts attributes of aiokafka's internal objects"
TLS = "needs a broker with the listeners of `listeners.py`"
GSSAPI = "GSSAPI is not supported"

LEFT_OUT = {
    "test_producer_notopic": MOCKED,
    "test_producer_send_leader_notfound": MOCKED,
    "test_producer_send_timeout": MOCKED,
    "test_producer_send_error": MOCKED,
    "test_producer_correct_time_returned": MOCKED,
    "test_producer_send_empty_batch": MOCKED,
    "test_producer_send_reenque_resets_waiters": MOCKED,
    "test_producer_indempotence_no_duplicates": MOCKED,
    "test_producer_invalid_leader_retry_metadata": MOCKED,
    "test_producer_leader_change_preserves_order": MOCKED,
    "test_producer_sender_errors_propagate_to_producer": MOCKED,
    "test_consumer_invalid_crc_in_records": MOCKED,
    "test_consumer_compacted_topic": MOCKED,
    "test_consumer_compressed_returns_older_msgs": MOCKED,
    "test_consumer_propagates_coordinator_errors": MOCKED,
    "test_consumer_propagates_heartbeat_errors": MOCKED,
    "test_consumer_propagates_commit_refresh_errors": MOCKED,
    "test_producer_idempotence_configuration": INTERNAL,
    "test_producer_transactional_restart_reaquire_pid": INTERNAL,
    "test_producer_transactional_raise_out_of_sequence": INTERNAL,
    "test_producer_transactional_aborting_previous_failure": INTERNAL,
    "test_producer_transactional_cancel_txn_methods": INTERNAL,
    "test_kafka_consumer_sets_coordinator_values": INTERNAL,
    "test_metadata": INTERNAL,
    "test_rebalance_listener_with_coroutines": INTERNAL,
    "test_consumer_cleanup_unassigned_data_getone": INTERNAL,
    "test_consumer_cleanup_unassigned_data_getmany": INTERNAL,
    "test_consumer_position": "expects that positions are unknown after a rebalance; here they are kept",
    "test_producer_ssl": TLS,
    "test_ssl_consume": TLS,
    "test_sasl_plaintext_gssapi": GSSAPI,
    "test_admin_client_sasl_plaintext_gssapi": GSSAPI,
}
"""The reason by name of the test."""
