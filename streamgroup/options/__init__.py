"""The one place of options: name, type, default, one line of doc; parse, validate, redact."""
