"""The site: `make site`."""
