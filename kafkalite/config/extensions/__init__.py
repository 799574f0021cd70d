"""Names of what packages add to a broker, as entry points."""
