"""A coordinator's application: the control channel, drains, claims of group members, and the state of its JVM."""
