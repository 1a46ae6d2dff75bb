uv run python scripts/training/run_recipe.py --model exaone_moe --mode sft --dataset tulu3
