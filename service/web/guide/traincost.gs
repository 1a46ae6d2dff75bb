const SERVICE = "http://localhost:8000"; // Google has to reach it: an address of your own network will not do
const KEY = ""; // a sheet key, where the service asks for one

/**
 * What a training run takes: all of the numbers in one request.
 *
 * =TRAINCOST(A5:A9, D1:E9) gives one number beside each name, or the reason why there is none. A field that holds
 * several values with ; between them, such as 8;16;32, gives a table instead, one row a value.
 *
 * @param {string|Array} names  numbers, such as gpu_hours: one, or a range of them
 * @param {Array} fields  two columns: the name of a field, such as gpus, and its value
 * @return {Array} one number a name, or the table
 * @customfunction
 */
function TRAINCOST(names, fields) {
  const wanted = [names].flat(2).filter((name) => name !== "");
  const asked = fields.filter(([name, value]) => name !== "" && value !== "");
  const secret = KEY === "" ? [] : [["key", KEY]];
  const query = [["metrics", wanted.join(";")], ["num", "."], ["on_error", "text"], ...secret, ...asked]
    .map((pair) => pair.map((part) => encodeURIComponent(part)).join("="))
    .join("&");
  const text = UrlFetchApp.fetch(`${SERVICE}/v1/cell/table.csv?${query}`).getContentText();
  const [header, ...rows] = Utilities.parseCsv(text);
  if (header[0] !== "metric") return [header, ...rows]; // a table, or one cell that says what is wrong
  return rows.map(([, value, , , , reason]) => [value === "" ? reason : Number(value)]);
}
