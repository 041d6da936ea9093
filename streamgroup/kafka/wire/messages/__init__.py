"""The messages of the protocol, grouped by API, with the fields of Kafka's own definitions."""
