// Which colour has a kind of memory, or a part of a step? Kinds of one family stand beside each other, in one hue.

const MEMORY = {
  weights: ["weights", "master_weights", "frozen_weights", "quantized_weights", "weight_copies", "moving_average"],
  optimizer: ["optimizer_states", "optimizer_scales", "update_buffers", "flat_copies"],
  gradients: [
    "gradients",
    "early_gradients",
    "buffered_gradients",
    "half_gradients",
    "reduced_gradients",
    "step_gradients",
    "persistent_gradients",
    "left_step_gradients",
    "gradient_placeholders",
  ],
  activations: [
    "activations",
    "loss_activations",
    "other_activations",
    "recomputed_activations",
    "left_streams",
    "attention_mask",
  ],
  logits: ["logits"],
  buffers: [
    "layer_buffers",
    "gradient_buckets",
    "gathered_weights",
    "cast_weights",
    "late_cast_weights",
    "kept_weights",
    "context_buffers",
    "pipeline_buffers",
    "workspace",
    "cached",
  ],
  device: ["allocator_holes", "driver"],
};

const STEP = {
  gemm: ["gemm"],
  attention: ["attention"],
  elementwise: ["elementwise", "cast", "accumulation", "loss", "host"],
  recompute: ["recompute"],
  exposed: [
    "exposed_tensor",
    "exposed_context",
    "exposed_expert",
    "exposed_data",
    "exposed_pipeline",
    "exposed_offload",
  ],
  bubble: ["bubble"],
  rest: ["optimizer", "straggler", "allocator", "other"],
};

const order = (families) =>
  new Map(Object.entries(families).flatMap(([family, kinds]) => kinds.map((k) => [k, family])));
const FAMILY = { memory: order(MEMORY), step: order(STEP) };

/** The family of a kind, which is its class in the style sheet. */
export const familyOf = (table, kind) => FAMILY[table].get(kind) ?? "buffers";

/** Which shade of its family's colour a kind has: 0 is the full one. */
export function shadeOf(table, kind) {
  const kinds = (table === "memory" ? MEMORY : STEP)[familyOf(table, kind)];
  return Math.min(3, Math.max(0, kinds.indexOf(kind)));
}

/** Parts in the order of their families. */
export function ordered(table, parts) {
  const kinds = [...FAMILY[table].keys()];
  const rank = ({ kind }) => kinds.indexOf(kind) + 1 || kinds.length + 1;
  return [...parts].sort((one, other) => rank(one) - rank(other));
}

/** What a kind is called. */
export const LABELS = {
  gemm: "matrix products",
  allocator_holes: "held by the allocator",
  driver: "driver and libraries",
};
