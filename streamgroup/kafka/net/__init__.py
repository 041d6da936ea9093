"""Connections to brokers, with TLS and SASL. No other package opens sockets to brokers."""
