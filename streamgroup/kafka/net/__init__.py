"""Connections to brokers: the only sockets to them, with TLS and SASL."""
