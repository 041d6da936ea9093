"""The pictures of the pages, drawn from tables, contracts and recorded figures: `make pictures`."""
