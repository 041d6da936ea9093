"""What the mechanisms of `auth/` need from outside: passwords, tokens, tickets."""
