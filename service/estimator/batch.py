"""How many micro-batches make one step? The arithmetic of batch sizes, and its refusals."""

from dataclasses import replace

from service.errors import Problem, Refused
from service.estimator.question import Recipe


def resolve_batch(recipe: Recipe, data: int) -> Recipe:
    """The recipe with its global batch filled in both units.

    Args:
        recipe: the recipe as asked
        data: data-parallel replicas [1]

    Returns:
        the recipe; accumulation = global_batch / (micro_batch x data) is whole

    Raises:
        Refused: the numbers do not divide, or disagree
    """
    tokens = recipe.sequence_length
    group = recipe.micro_batch * data
    batch, batch_tokens = recipe.global_batch, recipe.global_batch_tokens
    if batch is not None and batch_tokens is not None and batch * tokens != batch_tokens:
        raise Refused(_disagreement(batch, batch_tokens, tokens))
    if batch is None and batch_tokens is not None:
        if batch_tokens % tokens:
            raise Refused(_uneven_tokens(batch_tokens, tokens))
        batch = batch_tokens // tokens
    if batch is None:
        batch = group
    if batch % group:
        raise Refused(_uneven_batch(batch, recipe.micro_batch, data))
    return replace(recipe, global_batch=batch, global_batch_tokens=batch * tokens)


def _disagreement(batch: int, batch_tokens: int, tokens: int) -> Problem:
    return Problem(
        field="recipe.global_batch_tokens",
        code="batch_sizes_disagree",
        message=f"global_batch {batch} x {tokens} tokens = {batch * tokens}, not the {batch_tokens} given",
        fix="give one of global_batch and global_batch_tokens",
    )


def _uneven_tokens(batch_tokens: int, tokens: int) -> Problem:
    below = batch_tokens // tokens * tokens
    return Problem(
        field="recipe.global_batch_tokens",
        code="batch_is_whole_sequences",
        message=f"{batch_tokens} tokens are not a whole number of sequences of {tokens} tokens",
        fix=f"use {f'{below} or ' if below else ''}{below + tokens}",
    )


def _uneven_batch(batch: int, micro_batch: int, data: int) -> Problem:
    group = micro_batch * data
    below = batch // group * group
    return Problem(
        field="recipe.global_batch",
        code="accumulation_is_whole",
        message=f"a global batch of {batch} is not a whole number of micro-batches of {micro_batch} on {data} replicas "
        f"({group} sequences at once)",
        fix=f"use {f'{below} or ' if below else ''}{below + group}",
    )
