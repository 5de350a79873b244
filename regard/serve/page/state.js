// What the page shows, kept in the address, so that a view can be shared, reloaded and gone back from.

import { opening } from "./source.js";

/** What a translation is held to: subwords (`▁Good ▁morning </s>`) where the page knows them, the text that a person typed
 * where it does not. */
export const FREE = { target: "", target_pieces: "", prefix: "", prefix_pieces: "" };

/** What is about one sentence and its translation, and means nothing for another. */
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

// Of a file, what it was written about: that is where all its addresses start from.
const DEFAULTS = {
  ...ANEW,
  view: "translate",
  run: "",
  text: null, // not said, so that there may be an example; "" was said
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

/** All that is not as it would be anyway, as `#view=heads&text=…`. */
function address() {
  const changed = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  return "#" + new URLSearchParams(changed).toString();
}

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
}

/** A number of the address, which may say anything: a whole one from 0 to `most`. */
export const within = (value, most) => Math.max(0, Math.min(most, Math.trunc(Number(value)) || 0));

/** The subwords of the address; undefined where it says none. */
export const piecesOf = joined => (joined ? joined.split(" ").filter(piece => piece !== "</s>") : undefined);

/** A model that has learnt little may say signs that are no words, and then nobody can be given what it said. */
export const isSayable = pieces => !pieces.some(piece => piece === "<s>" || piece === "<pad>");

/** What the page itself decided, to be found again on the way back. */
export function keep(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", address());
}

/** Another view is a step that the browser can go back from; everything else is not. */
export function set(changes) {
  clearTimeout(waiting);
  const isStep = changes.view !== undefined && changes.view !== state.view;
  for (const [name, value] of Object.entries({ ...typed, ...changes })) state[name] = String(value);
  typed = {};
  if (isStep) history.pushState(null, "", address());
  else history.replaceState(null, "", address());
  listeners.forEach(listener => listener());
}

/** What is being typed: it counts after a pause, if there is to be one, or as soon as anything else changes. */
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
