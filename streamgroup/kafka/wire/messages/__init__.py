"""The messages that we speak, one file per concern, field by field as Kafka's own definitions have them."""
