nemo llm pretrain --factory "llama3_70b(num_nodes=128)"
