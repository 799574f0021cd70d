"""How a follower fetches: states of partitions, the offset of a truncation, the fetch session; without I/O."""
