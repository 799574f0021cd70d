"""Transactions of a producer: `machine` decides, `driver` sends its requests, `block` is what an application enters."""
