"""Which choices of the recipe shape the operations of a layer? The few that a layer kind needs to know."""

from dataclasses import dataclass

from service.estimator.documents import Documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the operations of one sequence are carried out."""

    tokens: int
    """Tokens of the sequence, s."""
    element_bytes: int
    """Bytes of one activation."""
    keeps_scores: bool
    """Attention scores are written to memory and kept (eager attention)."""
    drops_out: bool
    """Dropout is on, and its masks are kept."""
    fused_norm: bool
    """Norms keep only their input and output."""
    fused_activation: bool
    """The activation keeps only its inputs and output."""
    repeats_key_values: bool
    """Keys and values are copied to every query head before attention."""
    copies_result: bool = False
    """The attention kernel's result is kept a second time, in the order of the other activations."""
    product_bytes: float | None = None
    """Bytes of one number that a matrix product keeps of its input; those of an activation where None."""
    casts_each_input: bool = False
    """Every matrix product keeps a cast of its input of its own (autocast over fp32 weights)."""
    runs_transformers: bool = False
    """Layers are those of transformers."""
    counts_products: bool = False
    """Recompute goes by single operations, which need their place among the layer's matrix products."""
    keeps_embedding: bool = False
    """The embedding's result is kept beside the first layer's input."""
    weighs_results: bool = False
    """Experts' results are weighted after their last product, and so kept; else before it."""
    fuses_mixer_output: bool = True
    """The kernel of a state space computes its norm and output again from what the scan kept."""
    expert_load: float = 1.0
    """Tokens that the fullest rank's experts work on, over those that tokens choose on average."""
    documents: Documents | None = None
    """The documents that sequences are made of; None where every sequence is one document."""

    def product_input_bytes(self, numbers: int, readers: int = 1) -> int:
        """Bytes that matrix products keep of some numbers that they read [byte]."""
        each = self.element_bytes if self.product_bytes is None else self.product_bytes
        return round(numbers * each * (readers if self.casts_each_input else 1))
