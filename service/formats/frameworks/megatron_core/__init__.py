"""Tools that configure Megatron-Core: Megatron-LM, Megatron-Bridge and NeMo 2."""
