"""traincost: what it takes to train a large language model, in bytes, FLOP, seconds and money."""

__version__ = "0.1.0"
