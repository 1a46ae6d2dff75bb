"""Names that differ between the wire and Python."""

WIRE_NAMES = {"six_n": "6n", "memory_class": "class"}
"""Field names that Python cannot spell."""

INLINE = {"inline": True}
"""Metadata of a mapping whose items are serialised among the fields of its object."""
