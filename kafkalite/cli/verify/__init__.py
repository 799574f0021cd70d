"""`kafkalite topic verify`: compares the replicas of partitions."""
