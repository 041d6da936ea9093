"""Passwords and tokens for the mechanisms of `kafka/net/sasl/`, from files, endpoints and functions."""
