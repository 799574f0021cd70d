"""Streams: the records of a consumer for several tasks, each partition for one of them."""
