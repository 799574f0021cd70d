"""The consumer of records. `consumer` is what an application calls; `poll_loop` polls, `driver` does the I/O.

`fetch` decides what is fetched from which broker, `offsets` knows where the consumer reads and what is committed;
`streams` divides a consumer among tasks. The group is in `kafkalite_sdk.membership`, also `max_poll_interval_ms`.
"""
