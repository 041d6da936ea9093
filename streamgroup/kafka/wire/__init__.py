"""Pure: bytes <-> values of the Kafka protocol."""
