"""Tokens that a batch of documents trains, and the pairs of them that attention sees.

Packed, documents follow each other in full sequences and attention stays inside each; padded, each document has a
sequence of its own, which a plain kernel computes to its end. A document longer than a sequence is split over several.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from service.estimator.names import BatchingName
from service.estimator.question import DocumentLength, Recipe


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a recipe, cut into pieces that fit a sequence."""

    pieces: tuple[tuple[int, int], ...]
    """Tokens of a piece, and how many pieces have them."""
    batching: BatchingName

    @property
    def count(self) -> int:
        """Pieces in all [1]."""
        return sum(count for _, count in self.pieces)

    @property
    def tokens(self) -> int:
        """Tokens of all pieces [token]."""
        return sum(tokens * count for tokens, count in self.pieces)

    @property
    def squares(self) -> int:
        """Squared lengths of all pieces, summed [1]."""
        return sum(tokens**2 * count for tokens, count in self.pieces)


def documents_of(recipe: Recipe) -> Documents | None:
    """The documents of a recipe, split where they are longer than a sequence.

    None where every sequence is one document.
    """
    if not recipe.document_lengths:
        return None
    pieces = [piece for length in recipe.document_lengths for piece in _pieces(length, recipe.sequence_length)]
    return Documents(tuple(pieces), recipe.batching)


def _pieces(length: DocumentLength, tokens: int) -> list[tuple[int, int]]:
    full, rest = divmod(length.tokens, tokens)
    results = [(tokens, full * length.count), (rest, length.count)]
    return [(size, count) for size, count in results if size and count]


def sequence_pairs_twice(documents: Documents | None, tokens: int, pairs_twice: Callable[[int], int]) -> int:
    """Twice the query-key pairs that attention computes in one sequence of the batch, rounded to a whole number here.

    Formula:
        one document, padded: P(s)        packed: s sum(n P(l)) / sum(n l)

    Args:
        documents: the documents, n pieces of l tokens each; None where every sequence is one document
        tokens: sequence length, s [token]
        pairs_twice: twice the visible pairs of one piece by its tokens, P

    Returns:
        twice the pairs of one sequence [1]

    Source:
        Megatron-LM training/training.py num_floating_point_operations (seqlen_squared_sum_in_batch in place of s^2)

    >>> sequence_pairs_twice(Documents(((2, 3), (4, 1)), "packed"), 10, lambda tokens: tokens**2)
    28
    """
    if documents is None or documents.batching == "padded":
        return pairs_twice(tokens)
    return _rounded(tokens * _pairs_of(documents, pairs_twice), documents.tokens)


def document_pairs_twice(documents: Documents | None, tokens: int, pairs_twice: Callable[[int], int]) -> int:
    """Twice the query-key pairs of one sequence without its padding, rounded to a whole number here.

    Formula:
        one document, packed: as computed        padded: sum(n P(l)) / sum(n)

    Args:
        documents: the documents, n pieces of l tokens each; None where every sequence is one document
        tokens: sequence length, s [token]
        pairs_twice: twice the visible pairs of one piece by its tokens, P

    Returns:
        twice the pairs of one sequence [1]

    Source:
        definition

    >>> document_pairs_twice(Documents(((2, 3), (4, 1)), "padded"), 10, lambda tokens: tokens**2)
    7
    """
    if documents is None or documents.batching == "packed":
        return sequence_pairs_twice(documents, tokens, pairs_twice)
    return _rounded(_pairs_of(documents, pairs_twice), documents.count)


def _pairs_of(documents: Documents, pairs_twice: Callable[[int], int]) -> int:
    return sum(count * pairs_twice(tokens) for tokens, count in documents.pieces)


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def trained_share(recipe: Recipe) -> Fraction:
    """The exact share of the computed tokens that are trained: all but padding."""
    documents = documents_of(recipe)
    if documents is None or documents.batching == "packed":
        return Fraction(1)
    return Fraction(documents.tokens, documents.count * recipe.sequence_length)


def trained_tokens(recipe: Recipe) -> float:
    """Tokens of one sequence that are trained, on average; padding is not.

    Formula:
        one document, packed: s        padded: sum(n l) / sum(n)

    Args:
        recipe: the recipe; n pieces of l tokens each

    Returns:
        tokens of one sequence [token]

    Source:
        definition

    >>> lengths = (DocumentLength(tokens=100, count=3), DocumentLength(tokens=300, count=1))
    >>> trained_tokens(Recipe(sequence_length=200, document_lengths=lengths, batching="padded"))
    120.0
    """
    return float(trained_share(recipe) * recipe.sequence_length)


def step_tokens(tokens: float, global_batch: int) -> float:
    """Tokens that one optimizer step trains.

    Formula:
        B s

    Args:
        tokens: trained tokens of one sequence, s [token]
        global_batch: sequences in one step, B [1]

    Returns:
        tokens of one step [token]

    Source:
        definition

    >>> step_tokens(120.0, 4)
    480.0
    """
    return tokens * global_batch


def padding_fraction(recipe: Recipe) -> float:
    """Share of the computed tokens that are padding.

    Formula:
        1 - trained tokens / s

    Returns:
        share of the computed tokens [1]

    Source:
        definition

    >>> padding_fraction(Recipe(sequence_length=200))
    0.0
    """
    return float(1 - trained_share(recipe))
