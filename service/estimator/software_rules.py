"""What does the software that a recipe asks for need of the layout: ranks that share a loss, or what they send?"""

from service.estimator.numeric import both, implies
from service.estimator.rules import Rule
from service.estimator.software import asked_of

RULES: tuple[Rule, ...] = (
    Rule(
        "loss_parallel_needs_tensor_ranks",
        "recipe.stack.cross_entropy",
        lambda job, d: implies(asked_of(job.recipe).cross_entropy == "loss-parallel", d.tensor > 1),
        lambda _, __: (
            "loss-parallel shares the vocabulary among tensor ranks, and there is one",
            "set layout.tensor above 1, or leave cross_entropy out",
        ),
    ),
    Rule(
        "tensor_overlap_needs_tensor_ranks",
        "recipe.stack.tensor_overlap",
        lambda job, d: implies(bool(asked_of(job.recipe).tensor_overlap), d.tensor > 1),
        lambda _, d: (
            f"tensor_overlap hides what tensor ranks send to each other, and there is {d.tensor} tensor rank",
            "set layout.tensor above 1, or leave tensor_overlap out",
        ),
    ),
    Rule(
        "tensor_overlap_needs_split_norms",
        "recipe.stack.tensor_overlap",
        lambda job, d: implies(both(bool(asked_of(job.recipe).tensor_overlap), d.tensor > 1), d.sequence_parallel == 1),
        lambda _, __: (
            "tensor_overlap cuts what tensor ranks gather and scatter, and without sequence_parallel they do neither",
            "leave sequence_parallel or tensor_overlap out",
        ),
    ),
    Rule(
        "expert_overlap_needs_expert_ranks",
        "recipe.stack.expert_overlap",
        lambda job, d: implies(bool(job.model.num_experts) and asked_of(job.recipe).expert_overlap, d.expert > 1),
        lambda _, d: (
            f"expert_overlap hides what expert ranks send to each other, and there is {d.expert} expert rank",
            "set layout.expert above 1, or leave expert_overlap out",
        ),
    ),
)
