// How is the service asked? JSON in, JSON out; a refusal is an answer that says what to mend.

import * as key from "./key.js";

const HEADERS = { "Content-Type": "application/json" };

/** Thrown where the service does not answer as asked; its problems name each field and the fix. */
class Refusal extends Error {
  constructor(problem) {
    super(problem.detail || problem.title || "the service did not answer");
    this.problems = problem.errors || [];
  }
}

let waiting = 0;

/** Run a request; while any is under way the page says so in data-asking. */
async function asking(work) {
  waiting += 1;
  document.body.dataset.asking = waiting;
  try {
    return await work();
  } finally {
    waiting -= 1;
    document.body.dataset.asking = waiting;
  }
}

/** Send a request with the reader's key, and again with another one for as long as the service takes none. */
async function send(path, options = {}) {
  for (;;) {
    const response = await fetch(path, { ...options, headers: { ...options.headers, ...key.headers() } });
    if (response.status !== 401) return response;
    await key.wanted((await response.json()).detail);
  }
}

async function read(response) {
  const answer = await response.json().catch(() => ({ detail: `the service answered ${response.status}` }));
  if (!response.ok) throw new Refusal(answer);
  return answer;
}

export const get = (path) => asking(async () => read(await send(path)));

export const post = (path, body, signal) =>
  asking(async () => read(await send(path, { method: "POST", headers: HEADERS, body: JSON.stringify(body), signal })));

/** A file of the service. */
export const file = (path) => asking(async () => (await send(path)).blob());

/** What is wrong, and what to do, in a line. */
export const toldBy = (error) =>
  error.problems?.map(({ message, fix }) => `${message}; ${fix}`).join(". ") || error.message;

/** One event of a stream: its fields by name. */
const fieldsOf = (block) =>
  Object.fromEntries(
    block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
  );

/** The events of a stream {name, held, id} as they come; it ends with the stream, or by the signal. */
export async function* events(path, options) {
  const headers = { ...options.headers, Accept: "text/event-stream" };
  const response = await send(path, { ...options, headers });
  if (!response.ok) await read(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const { event: name, data, id } of blocks.map(fieldsOf)) {
      if (data === undefined) continue; // a comment that keeps the connection
      const held = JSON.parse(data);
      if (name === "problem") throw new Refusal(held);
      yield { name, held, id };
    }
  }
}

/** Plans with word of how far the search is: told(counts) now and then, the answer at the end. */
export async function plans(body, told, signal) {
  const options = { method: "POST", headers: HEADERS, body: JSON.stringify(body), signal };
  for await (const { name, held } of events("/v1/plans", options)) {
    if (name === "plans") return held;
    told(held);
  }
  throw new Refusal({ detail: "the search ended before its answer" });
}

/** Runs one question at a time: while one is under way only the newest of those that come after it is kept. */
export function latest(work) {
  let busy = false;
  let next = null;
  return async function ask(question) {
    next = question;
    if (busy) return;
    busy = true;
    while (next !== null) {
      const now = next;
      next = null;
      await work(now);
    }
    busy = false;
  };
}
