nemo llm pretrain --factory llama3_8b model.config.num_query_groups=8
