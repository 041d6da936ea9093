"""What tasks do to read ranges of offsets."""
