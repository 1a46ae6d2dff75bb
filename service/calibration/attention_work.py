"""How much more does the backward pass of fused attention compute than the forward pass?

The standard library alone is needed: workers read it in other people's images.
"""

BACKWARD_WORK = 2.5
"""Work of the backward pass over that of the forward pass: five products, the scores once again among them, instead of
two. Source: Dao 2023, arXiv:2307.08691, section 4.1."""
