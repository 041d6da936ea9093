"""TLS of the connections to brokers: stores of certificates, contexts, the transport, and its errors."""
