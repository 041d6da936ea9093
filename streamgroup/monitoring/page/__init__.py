"""The live page: the state of brokers, groups and this machine's members, with a short history, in a browser."""
