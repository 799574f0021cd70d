"""The numbers of SCRAM mechanisms in requests (ScramMechanism.java)."""

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
NUMBERS = {name: number for number, name in MECHANISMS.items()}
