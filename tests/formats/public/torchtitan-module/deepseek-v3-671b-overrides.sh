MODULE=deepseek_v3 CONFIG=deepseek_v3_671b ./run_train.sh \
  --override.imports torchtitan.overrides.fused_mla.fused_mla,torchtitan.overrides.fused_swiglu.fused_swiglu
