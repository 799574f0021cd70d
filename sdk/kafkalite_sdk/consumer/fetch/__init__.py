"""The fetches of a consumer: requests and sessions of each broker, buffered records, errors. `fetcher` is the whole."""
