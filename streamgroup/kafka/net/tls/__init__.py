"""TLS for the connections to brokers: key and trust stores, SSL contexts, the transport, and its errors."""
