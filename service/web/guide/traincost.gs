const SERVICE = "http://localhost:8000"; // Google has to reach it: an address of your own network will not do
const KEY = ""; // a sheet key, where the service asks for one
const CACHE_SECONDS = 600;

/**
 * What a training run takes.
 *
 * =TRAINCOST("llama 3.1 8b, 200B tokens, 64xH100, $2.50/h", "cost_usd") gives one number. =TRAINCOST(D1:E9, A5:A9) asks
 * by fields, and gives one number beside each name, or the reason why there is none. A field that holds several values
 * with ; between them, such as 8;16;32, gives a table instead, one row a value.
 *
 * @param {string|Array} question  a sentence, or two columns: the name of a field, such as gpus, and its value
 * @param {string|Array} names  numbers, such as gpu_hours: one, or a range of them
 * @return {number|Array} one number a name, or the table
 * @customfunction
 */
function TRAINCOST(question, names) {
  if (Array.isArray(names) && names[0].length > 1) return TRAINCOST(names, question); // the fields may come last
  const wanted = [names].flat(2).filter((name) => name !== "");
  const asked = Array.isArray(question)
    ? question.filter(([name, value]) => name !== "" && value !== "")
    : [["question", question]];
  const query = [["metrics", wanted.join(";")], ["num", "."], ["on_error", "text"], ...asked]
    .map((pair) => pair.map((part) => encodeURIComponent(part)).join("="))
    .join("&");
  const [header, ...rows] = Utilities.parseCsv(fetched(query));
  const isTable = header[0] !== "metric"; // or one cell, which says what is wrong
  const cells = isTable
    ? [header, ...rows.map((row) => row.map(typed))]
    : rows.map(([, value, , , , reason]) => [value === "" ? reason : Number(value)]);
  if (Array.isArray(names) || rows.length > 1) return cells;
  if (typeof cells[0][0] !== "number") throw new Error(cells[0].join(", ")); // so that a sum shows the error, too
  return cells[0][0];
}

/** The table of a query; the same query within ten minutes is sent once. */
function fetched(query) {
  const digest = Utilities.computeDigest(Utilities.DigestAlgorithm.SHA_256, query);
  const place = Utilities.base64Encode(digest);
  const cache = CacheService.getScriptCache();
  const known = cache.get(place);
  if (known !== null) return known;
  const secret = KEY === "" ? "" : `&key=${encodeURIComponent(KEY)}`;
  const text = UrlFetchApp.fetch(`${SERVICE}/v1/cell/table.csv?${query}${secret}`).getContentText();
  if (!text.startsWith("#ERR") && text.length < 90000) cache.put(place, text, CACHE_SECONDS);
  return text;
}

/** A number where a text is one, so that sums count it. */
function typed(text) {
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}
