nemo llm pretrain --factory llama3_8b model.config.context_parallel_size=2
