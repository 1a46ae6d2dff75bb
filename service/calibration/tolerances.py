"""How far may a right result be off? One table, for whoever measures and for whoever judges what was measured.

The standard library alone is needed: workers read it in other people's images.
"""

from collections.abc import Mapping

ALLOWED_ERROR_FRACTIONS: Mapping[str, float] = {"fp32": 1e-3, "bf16": 3e-2, "fp16": 1e-2, "fp8": 0.13}
"""Largest error of a right result over the largest number of its reference, by number format: what rounding the result,
or summing parts of it in the format, leaves; in fp32 what products in TF32 leave. A wrong kernel is off by whole
numbers. Source: a choice, at least four units of rounding, of 2^-11 in TF32 and fp16, 2^-9 in bf16 and 2^-4 in fp8;
IEEE 754 and OCP 8-bit floating point specification 1.0."""

EXCHANGED_ERROR_FRACTION = 1e-4
"""The same of a sum of fp32 numbers over ranks. Source: a choice, a thousand times the format's precision."""

MOVED_ERROR_FRACTION = 1e-5
"""The same of a sum in fp32 over what was read; what is copied has none. Source: a choice, a hundred times the format's
precision."""
