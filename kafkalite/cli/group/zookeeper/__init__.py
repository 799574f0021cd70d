"""Groups of ZooKeeper-era consumers: the `--zookeeper` of the commands of `kafkalite group`."""
