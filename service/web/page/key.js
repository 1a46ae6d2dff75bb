// Which key does the reader have? It is asked for where the service wants one, and kept for this tab alone.

import { place } from "./elements.js";

const KEPT = "traincost-key";

let key = "";
let entered = null;

/** Storage that a browser may deny to a page in a frame; the key is then kept until the page is left. */
function stored(work) {
  try {
    return work(sessionStorage);
  } catch {
    return null;
  }
}

/** Headers that show the key, where there is one. */
export function headers() {
  key ||= stored((kept) => kept.getItem(KEPT)) ?? "";
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Ask the reader for a key, saying why; however many requests wait for it, once. */
export function wanted(why) {
  const form = place("key");
  place("key-fault").textContent = why;
  form.hidden = false;
  entered ??= new Promise((enter) => {
    form.addEventListener(
      "submit",
      (event) => {
        event.preventDefault();
        key = place("input-key").value.trim();
        stored((kept) => kept.setItem(KEPT, key));
        form.hidden = true;
        entered = null;
        enter();
      },
      { once: true },
    );
    place("input-key").focus();
  });
  return entered;
}
