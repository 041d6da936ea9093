"""Kafka's wire protocol, without sockets: messages to bytes, and bytes to messages."""
