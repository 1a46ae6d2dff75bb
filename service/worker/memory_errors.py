"""Does an error say that a device, or the machine, has no memory left?"""

WORDS = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What torch's allocators and libraries say then."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says so.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("out of range"))
    (True, False)

    Args:
        error: the error

    Returns:
        whether it does
    """
    return isinstance(error, MemoryError) or any(word in str(error) for word in WORDS)
