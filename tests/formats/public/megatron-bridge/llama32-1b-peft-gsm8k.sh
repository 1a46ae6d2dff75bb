uv run python -m torch.distributed.run --nproc_per_node=1 scripts/training/run_recipe.py \
    --recipe llama32_1b_peft_1gpu_h100_bf16_config \
    --mode lora --dataset gsm8k \
    checkpoint.pretrained_checkpoint=/checkpoints/base_model
