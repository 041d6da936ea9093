"""Rows and offsets in one transaction of a database: the offset table, a batch's transaction, and loading rows."""
