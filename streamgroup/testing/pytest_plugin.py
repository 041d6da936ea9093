"""Fixtures for tests that need real servers."""
