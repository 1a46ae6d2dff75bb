// How is a number written for people? Base units come in; the reader chooses binary or SI prefixes for bytes.

const LETTERS = ["", "k", "M", "G", "T", "P", "E"];
const WORDS = ["", "", " million", " billion", " trillion", " quadrillion"];

const FORMS = [0, 1, 2, 3, 4].map(
  (most) => new Intl.NumberFormat("en", { maximumSignificantDigits: Math.max(1, most) }),
);

const digits = (value, significant = 3) => FORMS[significant].format(value);

function scaled(value, step, most) {
  let power = 0;
  while (Math.abs(value) >= step * 0.9995 && power < most) {
    value /= step;
    power += 1;
  }
  return [value, power];
}

/** Whether bytes are written in powers of 1024; the reader's choice. */
export const units = { binary: true };

export function bytes(value) {
  const [shown, power] = scaled(value, units.binary ? 1024 : 1000, 6);
  return `${digits(shown)} ${LETTERS[power].toUpperCase()}${power && units.binary ? "i" : ""}B`;
}

export function seconds(value) {
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${digits(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  return value < 600 ? `${digits(value)} s` : `${digits(value / 60)} min`;
}

export const days = (value) => (value < 2 ? `${digits(value * 24)} h` : `${digits(value)} days`);
export const fraction = (value) => (value === 0 ? "0 %" : `${digits(value * 100, Math.abs(value) < 0.1 ? 2 : 3)} %`);
const cents = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
export const usd = (value) =>
  value < 1000 ? `$${cents.format(value)}` : value < 1e6 ? `$${digits(value, 4)}` : `$${digits(value / 1e6, 4)} M`;
export const count = (value) => digits(value, 4);
export const plain = (value) => (Number.isFinite(value) ? String(value) : "");

function flop(value) {
  const power = value > 0 ? Math.floor(Math.log10(value)) : 0;
  return power < 6 ? `${digits(value)} FLOP` : `${digits(value / 10 ** power)} × 10${superscript(power)} FLOP`;
}

const superscript = (power) => [...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

export const energy = (kwh) => (kwh < 1e4 ? `${digits(kwh)} kWh` : `${digits(kwh / 1e3)} MWh`);

/** A count as it is, and a large one in words: 5,836; 12.3 million. */
export function large(value) {
  if (value < 1e6) return digits(value, 4);
  const [shown, power] = scaled(value, 1000, 5);
  return `${digits(shown, 4)}${WORDS[power]}`;
}

/** A count in a few letters: 8.03B parameters, 131k tokens. */
export function short(value) {
  const [shown, power] = scaled(value, 1000, 4);
  return `${digits(shown)}${["", "k", "M", "B", "T"][power]}`;
}

/** The distance of some five round marks up to so many bytes. */
export function tick(most) {
  const step = units.binary ? 1024 : 1000;
  const unit = step ** Math.floor(Math.log(most / 5) / Math.log(step));
  const round = 10 ** Math.floor(Math.log10(most / 5 / unit));
  return unit * round * [1, 2, 5, 10].find((digit) => digit * round * unit >= most / 5 / 1.3);
}

const WRITERS = [
  [/_bytes$|bytes$/, bytes],
  [/days$/, days],
  [/seconds$/, seconds],
  [/fraction$/, fraction],
  [/usd$|usd_per_gpu_hour$/, usd],
  [/flop$/, flop],
];

/** The writer of a field, by the unit that its name ends in. */
export function writerOf(path) {
  const name = path.replace(/\.(value|low|high)$/, "");
  const found = WRITERS.find(([ending]) => ending.test(name));
  return found ? found[1] : (value) => digits(value, 4);
}

/** A name of the wire as words: exposed_tensor is exposed tensor. */
export const words = (name) => name.replaceAll("_", " ");
