"""Steps of adapters beside matrices of 4 bits against published ones, on which no constant is fitted."""

from statistics import median

from service.catalogue import shipped_catalogue
from service.estimator import Cluster, Layout, Model, Question, Recipe, estimate
from service.estimator.question import MatrixName, Method

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
ROWS = {
    (4096, 32, 11008, 151936): (3.0, 3.0, 3.5, 7.0, 11.6, 22.3),
    (5120, 40, 13696, 152064): (5.3, 6.3, 8.2, 11.8, 20.1, 38.3),
    (8192, 80, 24576, 152064): (27.4, 31.5, 41.4, 59.5, 97.7, 179.8),
}
"""Seconds of one step of 8 micro-batches of Q-LoRA (GPTQ) on one A100, by the sizes of the model and the length.
Source: QwenLM/Qwen@2df8e8ac4 README.md, Profiling of Memory and Speed."""

TARGETS: tuple[MatrixName, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def predicted(sizes: tuple[int, int, int, int], length: int, method: Method) -> float:
    """Seconds of the same step, predicted: full recompute, fp16, DeepSpeed, as finetune_qlora_single_gpu.sh runs it."""
    hidden, layers, width, vocabulary = sizes
    model = Model(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 128,
        intermediate_size=width,
        attention_bias=True,
        attention_out_bias=False,
    )
    recipe = Recipe(
        sequence_length=length,
        global_batch=8,
        recompute="full",
        precision="fp16-mixed",
        method=method,
        stack="deepspeed",
    )
    gpu = shipped_catalogue().gpus["a100-sxm4-80gb"].gpu
    cluster = Cluster(gpu=gpu.slug, gpus=1)
    return estimate(
        Question(model=model, recipe=recipe, layout=Layout(), cluster=cluster, gpu=gpu)
    ).step.step_seconds.value


def errors(method: Method) -> list[float]:
    """Predicted over published, less one, of every row."""
    return [
        predicted(sizes, length, method) / seconds - 1
        for sizes, row in ROWS.items()
        for length, seconds in zip(LENGTHS, row, strict=True)
    ]


def test_matrices_of_four_bits_are_made_wide_in_about_the_published_time() -> None:
    quantized = errors(Method(name="qlora", quantization="gptq", rank=64, targets=TARGETS))
    wide = errors(Method(name="lora", rank=64, targets=TARGETS))
    assert min(quantized) > -0.36
    assert max(quantized) < 0.12
    assert median(map(abs, quantized)) < 0.21
    assert median(map(abs, quantized)) < 0.6 * median(map(abs, wide))
