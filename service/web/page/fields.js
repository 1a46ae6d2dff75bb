// Which fields of a question does the page show, and what may each be? The names are those of the API.

const powers = (most) => Array.from({ length: Math.log2(most) + 1 }, (_, i) => 2 ** i);
const TOKENS = [9, 10, 11, 12, 13].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
const PRICES = [0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 4.5, 5, 6, 8, 10, 12];

/** kind: steps (a slider and a number), choice (names of /v1/choices), number (may be left out), truth. */
export const FIELDS = [
  { name: "gpus", part: "cluster", group: "cluster", label: "GPUs", kind: "steps", stops: powers(16384) },
  {
    name: "usd_per_gpu_hour",
    part: "price",
    group: "cluster",
    label: "USD per GPU-hour",
    kind: "steps",
    stops: PRICES,
  },
  {
    name: "sequence_length",
    part: "recipe",
    group: "recipe",
    label: "Sequence length",
    kind: "steps",
    stops: powers(1048576).slice(8),
  },
  { name: "micro_batch", part: "recipe", group: "recipe", label: "Micro-batch", kind: "steps", stops: powers(64) },
  { name: "global_batch", part: "recipe", group: "recipe", label: "Global batch", kind: "steps", stops: powers(16384) },
  { name: "training_tokens", part: "recipe", group: "recipe", label: "Training tokens", kind: "steps", stops: TOKENS },
  { name: "precision", part: "recipe", group: "recipe", label: "Precision", kind: "choice" },
  { name: "optimizer", part: "recipe", group: "recipe", label: "Optimizer", kind: "choice" },
  { name: "recompute", part: "recipe", group: "recipe", label: "Recompute", kind: "choice" },
  { name: "stack", part: "recipe", group: "recipe", label: "Software", kind: "choice" },
  { name: "method", part: "recipe", group: "more", label: "Method", kind: "choice" },
  { name: "attention", part: "recipe", group: "more", label: "Attention", kind: "choice" },
  { name: "gradient_dtype", part: "recipe", group: "more", label: "Gradients", kind: "choice" },
  { name: "tensor", part: "layout", group: "layout", label: "Tensor", kind: "steps", stops: powers(64) },
  { name: "pipeline", part: "layout", group: "layout", label: "Pipeline", kind: "steps", stops: powers(64) },
  {
    name: "virtual_pipeline",
    part: "layout",
    group: "layout",
    label: "Virtual pipeline",
    kind: "steps",
    stops: powers(16),
  },
  { name: "context", part: "layout", group: "layout", label: "Context", kind: "steps", stops: powers(64) },
  { name: "expert", part: "layout", group: "layout", label: "Expert", kind: "steps", stops: powers(256) },
  { name: "zero_stage", part: "layout", group: "layout", label: "ZeRO stage", kind: "choice", whole: true },
  { name: "schedule", part: "layout", group: "more", label: "Schedule", kind: "choice" },
  { name: "embedding_in_split", part: "layout", group: "more", label: "Embedding as a layer", kind: "truth" },
  { name: "loss_in_split", part: "layout", group: "more", label: "Loss as a layer", kind: "truth" },
  { name: "sequence_parallel", part: "layout", group: "more", label: "Sequence parallel", kind: "truth" },
  { name: "reshard_after_forward", part: "layout", group: "more", label: "Reshard after forward", kind: "truth" },
  { name: "context_method", part: "layout", group: "more", label: "Context method", kind: "choice" },
  { name: "rank_order", part: "layout", group: "more", label: "Order of ranks", kind: "choice" },
  { name: "offload", part: "layout", group: "more", label: "Offload", kind: "choice" },
  { name: "expert_tensor", part: "layout", group: "more", label: "Expert tensor", kind: "number" },
  { name: "shard_group", part: "layout", group: "more", label: "Shard group", kind: "number" },
  { name: "virtual_group", part: "layout", group: "more", label: "Virtual group", kind: "number" },
];

export const FIELD = new Map(FIELDS.map((field) => [field.name, field]));

/** The question that the page opens with. */
export const START = {
  model: "llama-3.1-8b",
  machine: "h100-sxm5-80gb",
  gpus: 64,
  usd_per_gpu_hour: 2.5,
  sequence_length: 8192,
  micro_batch: 1,
  global_batch: 512,
  training_tokens: 2e11,
  tensor: 2,
  pipeline: 2,
};
