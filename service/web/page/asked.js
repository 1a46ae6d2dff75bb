// What is asked now, and who has to know when it changes?

/** The question of the page by field; what is left out the service fills in. */
export const asked = {};

const listeners = [];

/** Call this with the names of the fields that changed, whenever any did. */
export const whenChanged = (listener) => listeners.push(listener);

/** Ask something else: fields by name; undefined leaves one out. */
export function change(fields) {
  const names = Object.keys(fields).filter((name) => asked[name] !== fields[name]);
  for (const name of names) {
    if (fields[name] === undefined) delete asked[name];
    else asked[name] = fields[name];
  }
  if (names.length) for (const listener of listeners) listener(names);
}

/** Ask only this. */
export function replace(fields) {
  const gone = Object.keys(asked).filter((name) => !(name in fields));
  change({ ...Object.fromEntries(gone.map((name) => [name, undefined])), ...fields });
}
