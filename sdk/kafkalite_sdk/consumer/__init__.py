"""The consumer: `positions` and `offsets` know where it reads, `fetcher` what it fetches, `consumer` does the I/O."""
