"""Can the software number ranks in the order that is asked for?"""

from service.estimator.job import Job
from service.estimator.rules import Demand

DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "stack_numbers_ranks_so",
        "layout.rank_order",
        lambda job, layout: layout.rank_order in job.stack.rank_orders,
        lambda job, layout: (
            f"{job.software.name} cannot number ranks in the order {layout.rank_order}",
            f"use {', '.join(job.stack.rank_orders)}, or leave rank_order out",
        ),
    ),
    Demand(
        "stack_reorders_ranks_so_sharded",
        "layout.rank_order",
        lambda job, layout: (
            layout.rank_order not in job.stack.rank_orders[1:] or layout.zero_stage in job.stack.reordered_zero_stages
        ),
        lambda job, layout: (
            f"{job.software.name} numbers ranks as {job.stack.rank_orders[0]} alone at ZeRO stage {layout.zero_stage}",
            f"leave rank_order out, or use zero_stage {' or '.join(map(str, job.stack.reordered_zero_stages))}",
        ),
    ),
)
"""What an order of ranks has to meet."""
