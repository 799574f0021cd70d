"""Membership in consumer groups: one pure machine for three group protocols, which enforces `max_poll_interval_ms`."""
