"""The `streamgroup` command."""
