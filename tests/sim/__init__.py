"""The deterministic simulation: real members and planning over a simulated group, Spark, sinks, clock and network.

`docs/simulation.md` says what is real, what is simulated, and what the checker licenses. `python -m tests.sim --help`.
"""
