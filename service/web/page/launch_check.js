// What does the real thing take? A worker measures this job's kernels; the address of the page keeps which check it was.

import { asked, change, whenChanged } from "./asked.js";
import { typed } from "./controls.js";
import { element, note, place } from "./elements.js";
import { measuredOf } from "./measured.js";
import { words } from "./numbers.js";
import { bodyOf } from "./question.js";
import { events, get, post, toldBy } from "./service.js";

const PATH = "/v1/launch-checks";
const PROBES = ["context", "gemm", "attention", "bandwidth", "elementwise", "collective", "step", "profile"];
const AGAIN_SECONDS = 2;

/** Times that the service may be out of reach one after the other before nobody tries any more. */
const FRUITLESS = 5;

let following = null;

/** The body of a launch check of what is asked now. */
function checkBody() {
  const probes = PROBES.filter((name) => place(`check-${name}`).checked);
  const seconds = typed(place("check-seconds").value);
  const on = place("check-on").value;
  return {
    question: bodyOf(asked),
    probes,
    ...(seconds === undefined ? {} : { time_budget_seconds: seconds }),
    ...(on ? { on } : {}),
  };
}

const fault = (error) => place("check-progress").replaceChildren(note(toldBy(error), "fault"));

async function start() {
  place("check-start").disabled = true;
  place("check-progress").textContent = "asking …";
  try {
    const { id } = await post(PATH, checkBody());
    change({ check: id });
  } catch (error) {
    fault(error);
  }
  place("check-start").disabled = false;
}

/** Each probe as a line: its name, how far it is, and why it did not succeed. */
function progressOf(probes) {
  const line = ({ probe, status, done_fraction: done, reason }) =>
    element(
      "li",
      { class: status },
      element("progress", { value: done ?? 0, "aria-label": `${probe} done` }),
      ` ${probe}: ${words(status)}${reason ? `, ${reason}` : ""}`,
    );
  return element("ul", { class: "probes" }, probes.map(line));
}

function show(check) {
  const over = !["queued", "running"].includes(check.status);
  place("check-stop").hidden = over;
  place("check-progress").textContent = over ? "" : waitingFor(check);
  place("check").replaceChildren(...(over ? measuredOf(check) : [progressOf(check.probes)]));
}

const waitingFor = ({ status, worker }) => (status === "queued" ? "waiting for a worker" : `${worker} measures`);

function tell({ name, held }) {
  if (name === "launch_check") show(held);
  else if (name === "progress") place("check").replaceChildren(progressOf(held.data.probes));
  else place("check-progress").textContent = waitingFor({ status: name, ...held.data });
}

/** Follow a launch check to its end; a connection that is cut is taken up where it was. */
async function follow(id) {
  following?.abort();
  const mine = new AbortController();
  following = mine;
  let last = "";
  let fruitless = 0;
  try {
    show(await get(`${PATH}/${id}`));
    while (!place("check-stop").hidden) {
      const headers = last ? { "Last-Event-ID": last } : {};
      try {
        for await (const event of events(`${PATH}/${id}/events`, { headers, signal: mine.signal })) {
          last = event.id ?? last;
          fruitless = 0;
          if (event.name !== "again") tell(event);
        }
      } catch (error) {
        fruitless += 1;
        if (error.name !== "TypeError" || fruitless === FRUITLESS) throw error; // fetch throws it where nobody answers
      }
      if (!place("check-stop").hidden) await new Promise((resolve) => setTimeout(resolve, 1000 * AGAIN_SECONDS));
    }
  } catch (error) {
    if (following === mine && error.name !== "AbortError") fault(error);
  }
}

async function stop() {
  try {
    show(await post(`${PATH}/${asked.check}/cancel`, {}));
  } catch (error) {
    fault(error);
  }
}

const box = (name) =>
  element(
    "label",
    { class: "check" },
    element("input", { type: "checkbox", id: `check-${name}`, checked: true }),
    name,
  );

/** The view of launch checks; the one that the address names is followed. */
export const view = {
  name: "measure",
  title: "Measure",
  build() {
    place("check-probes").append(...PROBES.map(box));
    place("check-start").addEventListener("click", start);
    place("check-stop").addEventListener("click", stop);
    whenChanged((names) => {
      if (names.includes("check") && asked.check) follow(asked.check);
    });
  },
  show() {},
};
