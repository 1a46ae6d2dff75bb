"""How many GPUs, which batch, which length had a published run, where its row does not say? One rule for each."""

from math import log2

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.workflows.accuracy.gpus import gpu_slug
from service.workflows.accuracy.totals_models import longest_sequence

USUAL_BATCH_TOKENS = 1 << 22
"""Tokens in one step where a row tells none. Source: LLaMA, arXiv:2302.13971, table 2; most rows that tell theirs."""

USUAL_SEQUENCE = 4096
"""Tokens in one sequence where a row tells none, at most what its model was built for.
Source: most rows from 2023 on."""

ROUNDED_FRACTION = 0.05
"""How far a batch told in round millions may lie from the power of two of sequences that it means.
Source: 4 million tokens for 2,048 sequences of 2,048 (LLaMA), 4.9 %."""

USUAL_DAYS = 30.0
USUAL_UTILISATION = 0.4
"""What sizes a cluster where a row does not: 6 N D at this share of the peak takes about so many days.
Source: a choice; GPU-hours hardly depend on the number of GPUs."""


def gpu_of(row: MeasuredRow, catalogue: Catalogue) -> str:
    """The catalogue's name of a row's GPU: of the largest memory and on the fastest link where it does not say.

    Args:
        row: the row
        catalogue: the GPUs

    Returns:
        its slug

    Raises:
        NotExpressible: the catalogue has none of that family
    """
    said = row.text("gpu").replace(" GB", "GB").split(",")[-1]
    size = next((word.removesuffix("GB") for word in said.split() if word.endswith("GB")), "80")
    form = "" if "PCIe" in said else " SXM"
    return gpu_slug(MeasuredRow(row.number, {"gpu": f"{said}{form}", "gpu_mem_gb": size}), catalogue)


def sequence_of(row: MeasuredRow, catalogue: Catalogue) -> int:
    """Tokens in one sequence of a row's run.

    Args:
        row: the row
        catalogue: the models

    Returns:
        as the row says, else the usual length [token]
    """
    return row.whole("seq_len") or min(USUAL_SEQUENCE, longest_sequence(row, catalogue) or USUAL_SEQUENCE)


def sequences_of(row: MeasuredRow, tokens: int, replicas: int) -> int:
    """Sequences in one step of a row's run: the multiple of its replicas that comes nearest to its batch.

    Args:
        row: the row
        tokens: tokens in one sequence [token]
        replicas: data-parallel replicas [1]

    Returns:
        as the row says, else the usual batch [1]
    """
    sequences = (row.number_of("batch_tokens") or USUAL_BATCH_TOKENS) / tokens
    meant = 2.0 ** round(log2(sequences))
    near = meant if abs(meant / sequences - 1) <= ROUNDED_FRACTION else sequences
    return max(1, round(near / replicas)) * replicas


def gpus_of(row: MeasuredRow, tokens: int, catalogue: Catalogue) -> int:
    """GPUs of a row's run: as it says, else the power of two at which it takes about a month.

    Args:
        row: the row
        tokens: tokens in one sequence, of which every replica has one [token]
        catalogue: the GPUs

    Returns:
        GPUs, at least one node, and at most one for each sequence of a step [1]

    Raises:
        NotExpressible: the row tells neither GPUs, nor parameters and tokens
    """
    told = row.whole("n_gpus")
    if told:
        return told
    parameters, trained = row.number_of("n_params_b"), row.number_of("tokens_t")
    if not parameters or not trained:
        raise NotExpressible("missing: n_gpus")
    peak = catalogue.gpus[gpu_of(row, catalogue)].gpu.bf16_flop_per_s or 0.0
    needed = 6 * parameters * 1e9 * trained * 1e12 / (USUAL_UTILISATION * peak * USUAL_DAYS * 24 * 3600)
    most = (row.number_of("batch_tokens") or USUAL_BATCH_TOKENS) / tokens
    return int(2 ** min(round(log2(max(needed, 8.0))), int(log2(max(most, 8.0)))))
