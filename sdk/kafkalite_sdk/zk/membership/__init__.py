"""The pure machine of a consumer whose group is in ZooKeeper; `effects` lists what it asks its driver to do."""
