"""The soak: three jobs of one group for hours, under kills, pauses, broker restarts and a rolling upgrade.

python -m tests.soak --minutes 10 --seed 1
"""
