"""Where the offsets of a ZooKeeper-era group are: in ZooKeeper, in the broker, or in both during a migration."""
