nemo llm pretrain --factory llama3_8b trainer.strategy.tensor_model_parallel_size=2
