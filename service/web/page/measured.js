// What was measured, beside what was predicted? A verdict with its reasons, the estimate before and after, every probe.

import { download, element, note, table } from "./elements.js";
import { bytes, count, fraction, seconds, words, writerOf } from "./numbers.js";
import { file } from "./service.js";

const VERDICTS = { go: "Go", caution: "Caution", "no-go": "No go" };
const CLASSES = { go: "fits", caution: "at_risk", "no-go": "out_of_memory" };

const OUTLOOK = [
  ["Peak memory of a GPU", "device_peak_bytes"],
  ["Step", "step_seconds"],
  ["MFU", "mfu_fraction"],
  ["GPU-hours", "gpu_hours"],
  ["Cost", "cost_usd"],
];

const rate = (value) => `${bytes(value)}/s`;

const writer = (quantity) => (quantity === "bytes_per_s" ? rate : writerOf(quantity));

const ranged = ({ low, value, high }, write) =>
  element(
    "span",
    { class: "stacked" },
    write(value),
    element("span", { class: "range" }, `${write(low)} – ${write(high)}`),
  );

const shapeWords = (shape) =>
  Object.entries(shape)
    .map(([name, value]) => `${words(name)} ${typeof value === "number" ? count(value) : value}`)
    .join(", ");

function verdictOf(check) {
  if (!check.verdict) return [note(check.error ?? words(check.status), "fault")];
  const reasons = check.reasons.map(({ message, fix }) => element("li", {}, `${message}; ${fix}`));
  const word = element("strong", { class: `word ${CLASSES[check.verdict]}` }, VERDICTS[check.verdict]);
  return [element("p", { id: "check-verdict" }, word), ...(reasons.length ? [element("ul", {}, reasons)] : [])];
}

function estimateOf({ estimate: { before, after } }) {
  const rows = OUTLOOK.filter(([, name]) => before[name]).map(([label, name]) => [
    label,
    ranged(before[name], writerOf(name)),
    after ? ranged(after[name], writerOf(name)) : "as before",
  ]);
  return [element("h3", {}, "The estimate"), table("The estimate", ["", "Before", "With what was measured"], rows)];
}

const measurementRow = ({ operation, shape, quantity, measured, predicted, ratio }) => [
  words(operation),
  element("span", { class: "layout" }, shapeWords(shape)),
  ranged(measured, writer(quantity)),
  predicted ? ranged(predicted, writer(quantity)) : "–",
  ratio === null ? "–" : fraction(ratio),
];

const HEADS = ["What ran", "Shape", "Measured", "Predicted", "Measured over predicted"];

function probeOf({ probe, status, reason, seconds: took, measurements }) {
  const heading = `${probe}: ${words(status)}${took ? ` in ${seconds(took)}` : ""}`;
  return element(
    "details",
    { id: `probe-${probe}` },
    element("summary", {}, heading),
    ...(reason ? [note(reason)] : []),
    ...(measurements.length ? [table(`Measured by ${probe}`, HEADS, measurements.map(measurementRow), 2)] : []),
  );
}

function traceOf({ id, files }) {
  if (!files.some((name) => name.includes("trace"))) return [];
  const name = `${id}.pt.trace.json.gz`;
  const save = async () => download(name, await file(`/v1/launch-checks/${id}/trace`), "application/gzip");
  const button = element("button", { type: "button", id: "check-trace", onclick: save }, "Download the trace");
  return [element("p", {}, button, " for the trace viewer of Chrome, Perfetto and TensorBoard")];
}

/** A launch check that has ended. */
export function measuredOf(check) {
  const device = check.environment ? [note(`measured on ${check.environment.device} by ${check.worker}`)] : [];
  return [
    ...verdictOf(check),
    ...device,
    ...traceOf(check),
    ...(check.verdict ? estimateOf(check) : []),
    element("h3", {}, "Probes"),
    ...check.probes.map(probeOf),
    ...check.assumptions.map((text) => note(text)),
  ];
}
