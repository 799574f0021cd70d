"""The client's view of a cluster, and its connections."""
