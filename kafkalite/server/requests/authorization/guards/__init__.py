"""The checks of API keys that need more than their row says, by subject; `by_key` has the table.

Each function returns the request without its refused entries, or None when it has answered the call; or, where a
request can have thousands of entries, the steps that return it.
"""
