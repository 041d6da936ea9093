"""The SASL mechanisms, and their passwords, tokens and tickets: from files, endpoints and functions."""
