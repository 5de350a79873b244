// The state of the page, kept in the address so that views can be shared and reloaded, and the back button works.

import { opening } from "./source.js";

/** Constraints on the translation: subwords (`▁Good ▁morning </s>`) if the page knows them, otherwise the text that the user
 * typed. */
export const FREE = { target: "", target_pieces: "", prefix: "", prefix_pieces: "" };

/** State that belongs to one sentence and its translation, and is reset for another. */
export const ANEW = {
  ...FREE,
  part: "0",
  place: "",
  reference: "",
  later: "",
  node: "",
  step: "0",
  query: "0",
  word: "0",
  merge: "",
  tried: "",
};

// In a file that `regard look` wrote, the defaults are the state for which it was written.
const DEFAULTS = {
  ...ANEW,
  view: "translate",
  run: "",
  text: null, // not given, so that an example may be shown; "" is given
  beam: "4",
  alpha: "0.6",
  lang: "",
  theme: "",
  side: "source",
  site: "cross",
  layer: "",
  head: "0",
  fold: "one",
  off: "",
  scale: "",
  pair: "3",
  block: "",
  positions: "on",
  causal: "on",
  other: "",
  stack: "decoder",
  ...opening,
};

export const state = { ...DEFAULTS };
const listeners = [];
let typed = {};
let waiting;

/** Return all that differs from the defaults, as `#view=heads&text=…`. */
function address() {
  const changed = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  return "#" + new URLSearchParams(changed).toString();
}

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
}

/** Return an integer from 0 to `most` for a value of the address, which may be anything. */
export const within = (value, most) => Math.max(0, Math.min(most, Math.trunc(Number(value)) || 0));

/** Return the subwords of the address, or undefined if it has none. */
export const piecesOf = joined => (joined ? joined.split(" ").filter(piece => piece !== "</s>") : undefined);

/** Return whether pieces can be given to a model. A model that has learnt little may output special tokens, which cannot. */
export const isSayable = pieces => !pieces.some(piece => piece === "<s>" || piece === "<pad>");

/** Store choices that the page made itself, without a new entry in the browser's history. */
export function keep(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", address());
}

/** Change the state. Only a change of view adds an entry to the browser's history. */
export function set(changes) {
  clearTimeout(waiting);
  const isStep = changes.view !== undefined && changes.view !== state.view;
  for (const [name, value] of Object.entries({ ...typed, ...changes })) state[name] = String(value);
  typed = {};
  if (isStep) history.pushState(null, "", address());
  else history.replaceState(null, "", address());
  listeners.forEach(listener => listener());
}

/** Change the state after a pause in typing, or at once if anything else changes. */
export function setSoon(changes, pause) {
  clearTimeout(waiting);
  typed = changes;
  if (pause !== undefined) waiting = setTimeout(() => set({}), pause);
}
export const isTyping = () => Object.keys(typed).length > 0;

export function onChange(listener) {
  listeners.push(listener);
}

read();
window.addEventListener("popstate", () => {
  clearTimeout(waiting);
  typed = {};
  read();
  listeners.forEach(listener => listener());
});
