"""TLS, SASL and ACLs of the test servers: made at the start of a server, for that server alone.

`settings` says which security a server has. `broker`, `client` and `jaas` write that as properties, without files and
processes. `server` has those of one server. Only a secured server imports this package, because of `cryptography`.
"""
