"""Which numbers divide a number?"""

MOST_PRIME = 1 << 16
"""Largest prime that divisors are taken apart by; what larger ones make up together counts as one.
Source: a choice; no degree, and no useful length, has a larger one."""


def divisors(number: int) -> list[int]:
    """The divisors of a number, ascending.

    Args:
        number: a positive number

    Returns:
        them; those alone that hold all or none of its prime factors beyond MOST_PRIME

    >>> divisors(12), divisors(2 * 1_000_003)
    ([1, 2, 3, 4, 6, 12], [1, 2, 1000003, 2000006])
    """
    found, rest, prime = [1], number, 2
    while rest > 1 and prime <= MOST_PRIME:
        prime = prime if prime * prime <= rest else rest
        powers = [1]
        while rest % prime == 0:
            rest //= prime
            powers.append(powers[-1] * prime)
        found = [one * power for one in found for power in powers]
        prime += 1
    return sorted({*found, *(one * rest for one in found)})
