"""SASL mechanisms as pure machines: the broker's bytes in, the client's bytes out. The connection carries them."""
