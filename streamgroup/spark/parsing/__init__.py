"""Pure code: parsers of records' values, the limit of dead letters, and the texts of their errors."""
