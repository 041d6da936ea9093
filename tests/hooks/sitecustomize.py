"""Loaded by every Python process that is started with this directory on its PYTHONPATH: the coordinators, Spark's
workers and, in the tests of faults, the driver.

It lets them import the installed PySpark, not the archives that Spark puts before it. Both are the same source. Python
keeps no byte code of an archive, so each process would list its files and compile PySpark anew: about a second of a
processor for every query. Most jobs that `tests/spark/test_jobs.py` submits run without this.

In the tests of faults it installs the points at which processes are killed (`named_points.py`).
"""

import gc
import os
import sys

gc.set_threshold(50_000)  # the collections during imports take a tenth of the CPU time of a process that starts

ARCHIVES = (".zip", ".jar")
sys.path[:] = [place for place in sys.path if not place.endswith(ARCHIVES)]
for place in [place for place in sys.path_importer_cache if place.endswith(ARCHIVES)]:
    del sys.path_importer_cache[place]  # else PySpark's `invalidate_caches` lists the files of these again

if "STREAMGROUP_FAULTS" in os.environ:
    import named_points

    named_points.install()
