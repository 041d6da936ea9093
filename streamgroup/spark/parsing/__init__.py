"""Pure: parsers of records as values, the limit of dead letters, and the words of their errors."""
