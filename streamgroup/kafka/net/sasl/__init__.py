"""Passwords and tokens for the mechanisms of `auth/`, from files, endpoints and functions."""
