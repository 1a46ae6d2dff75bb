"""Which fields are spelled otherwise on the wire?"""

WIRE_NAMES = {"six_n": "6n", "memory_class": "class"}
"""Field names that Python cannot spell."""
