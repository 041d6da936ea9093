"""The metrics of one driver's queries as values (names, labels and numbers), and the live page."""
