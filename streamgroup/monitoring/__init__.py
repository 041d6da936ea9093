"""Metrics of the queries of one driver, as values: their names, labels and figures, without a server."""
