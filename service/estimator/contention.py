"""By how much do compute and communication slow each other while both run on a GPU?"""

OVERLAP_SLOWDOWN_FRACTION = 0.126
"""Time that a matrix product takes longer while a collective runs beside it, over its time alone; 0.1 to 0.3 have been
measured. Collectives take multiprocessors and memory bandwidth from compute.
Source: PKU-DAIR/Hetu-Galvatron@cea12ff, profiled hardware (overlap coefficient 1.126); its overlap test says 1.3."""
