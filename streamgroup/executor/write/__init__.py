"""What tasks do to write rows."""
