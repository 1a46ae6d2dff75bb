nemo llm pretrain --factory llama3_70b trainer.max_steps=2000
