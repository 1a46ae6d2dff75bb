"""Bytes of one rank, kind by kind, and the peak of the device."""
