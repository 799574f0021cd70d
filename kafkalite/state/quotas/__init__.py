"""Client quotas as a pure machine: limits by user and client id, rates in windows, and the throttle times.

Times are milliseconds of a monotonic clock, so that steps of the wall clock change nothing.

Sources: ClientQuotaManager, SampledStat, Rate, TokenBucket, QuotaUtils, ConnectionQuotas of Apache Kafka;
KIP-13, 55, 124, 219, 546, 599, 612.
"""
