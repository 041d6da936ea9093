"""Loaded by every Python process that a test starts with this directory on its PYTHONPATH: the driver, the coordinator
and Spark's workers. What is done here stands in `named_points.py`.
"""

import os

if "STREAMGROUP_FAULTS" in os.environ:
    import named_points

    named_points.install()
