"""The control channel, drains, the claims that keep members of one application apart, and the state of the driver's
JVM.
"""
