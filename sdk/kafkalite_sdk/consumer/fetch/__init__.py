"""What a consumer fetches: requests and sessions of each broker, buffered records, errors. `fetcher` is the whole."""
