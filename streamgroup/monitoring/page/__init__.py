"""The live page: what the brokers and the members of this machine answer, with a short history, in a browser."""
