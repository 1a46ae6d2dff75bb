// The page: a question is put together on the left, and the answer stands beside it as soon as it changes.

import { askedBy, fragmentOf } from "./address.js";
import { view as accuracy } from "./accuracy.js";
import { asked, change, replace, whenChanged } from "./asked.js";
import { view as compare } from "./comparison.js";
import * as controls from "./controls.js";
import { place } from "./elements.js";
import * as explanations from "./explanations.js";
import { view as files } from "./exports.js";
import { view as measure } from "./launch_check.js";
import { showMemory } from "./memory.js";
import * as models from "./model_choice.js";
import { units } from "./numbers.js";
import { view as plans, find } from "./plans.js";
import { bodyOf, fieldAt } from "./question.js";
import { view as map } from "./scaling_map.js";
import * as sentence from "./sentence.js";
import { get, latest, post } from "./service.js";
import { showStep } from "./step.js";
import * as tabs from "./tabs.js";
import { view as timeline } from "./timeline.js";
import { showRefusal, showVerdict } from "./verdict.js";

const ADDRESS_SECONDS = 0.2;

let last = null;
let writing = 0;

function show(answer) {
  last = answer;
  document.body.classList.remove("stale");
  controls.showFilled(answer.resolved);
  showVerdict(answer);
  showMemory(answer);
  showStep(answer);
  tellHeight();
}

function refuse(error) {
  document.body.classList.add("stale");
  showRefusal(error.problems ? error : { problems: [], message: error.message });
  for (const { pointer, message, fix } of error.problems ?? []) {
    const field = fieldAt(pointer);
    if (field) controls.tell(field, `${message}; ${fix}`);
  }
}

const ask = latest(async () => {
  const body = bodyOf(asked);
  try {
    const answer = await post("/v1/estimates", body);
    explanations.explainBy(body);
    show(answer);
  } catch (error) {
    refuse(error);
  }
});

function write() {
  clearTimeout(writing);
  writing = setTimeout(async () => history.replaceState(null, "", await fragmentOf(asked)), 1000 * ADDRESS_SECONDS);
}

/** A page that embeds this one is told how high it is. */
function tellHeight() {
  if (parent !== window) parent.postMessage({ traincost: { height: document.documentElement.scrollHeight } }, "*");
}

function buildUnits() {
  place("input-units").addEventListener("change", ({ target }) => change({ units: target.value }));
  whenChanged((names) => {
    if (!names.includes("units")) return;
    units.binary = asked.units !== "si";
    place("input-units").value = units.binary ? "binary" : "si";
    if (last) show(last);
  });
}

function buildShare() {
  place("share").addEventListener("click", async () => {
    history.replaceState(null, "", await fragmentOf(asked));
    await navigator.clipboard?.writeText(location.href).catch(() => {});
    place("shared").textContent = "The address of this page is the question; it is copied.";
    setTimeout(() => (place("shared").textContent = ""), 4000);
  });
}

const OPEN = { name: "answer", title: "Memory and time", build() {}, show() {} };
const VIEWS = [OPEN, plans, timeline, compare, map, accuracy, measure, files];
const LOOKS = new Set(["view", "units", "clusters", "models", "published", "check"]);

async function start() {
  if (new URLSearchParams(location.search).get("embed") === "1") document.body.classList.add("embed");
  const lists = ["/v1/models?limit=1000", "/v1/gpus?limit=1000", "/v1/clusters?limit=1000", "/v1/choices"];
  const [presets, gpus, clusters, choices] = await Promise.all(lists.map(get));
  controls.build(choices);
  models.build(presets.items, gpus.items, clusters.items);
  explanations.build();
  sentence.build();
  buildUnits();
  buildShare();
  for (const view of VIEWS) view.build();
  tabs.build(VIEWS, (view, names) => view.show(names));
  whenChanged((names) => {
    write();
    if (names.some((name) => !LOOKS.has(name))) ask(true);
  });
  if (matchMedia("(max-width: 60rem)").matches) place("group-layout").parentElement.open = false;
  replace(await askedBy(location.hash));
  addEventListener("hashchange", async () => replace(await askedBy(location.hash)));
  if (asked.view === "plans") find();
}

start().catch(refuse);
