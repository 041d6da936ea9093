"""Mutants of the rules: one small change each that breaks a rule, and the suites that must notice it (`table.toml`)."""
