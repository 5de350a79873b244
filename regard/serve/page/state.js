// What the page shows, kept in the address, so that a view can be shared, reloaded and gone back from.

const DEFAULTS = {
  view: "translate",
  run: "",
  text: "",
  target: "",
  prefix: "",
  beam: "4",
  alpha: "0.6",
  lang: "",
  theme: "",
  place: "",
  word: "0",
  side: "source",
  site: "cross",
  layer: "",
  head: "0",
  fold: "one",
  off: "",
  tried: "",
  query: "0",
  scale: "",
  pair: "3",
  block: "",
  positions: "on",
  later: "",
  reference: "",
  step: "0",
  node: "",
  other: "",
  stack: "decoder",
};

export const state = { ...DEFAULTS };
const listeners = [];

/** All that is not as it would be anyway, as `#view=heads&text=…`. */
export function address() {
  const changed = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  return "#" + new URLSearchParams(changed).toString();
}

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
}

/** Another view is a step that the browser can go back from; everything else is not. */
export function set(changes) {
  const isStep = changes.view !== undefined && changes.view !== state.view;
  for (const [name, value] of Object.entries(changes)) state[name] = String(value);
  if (isStep) history.pushState(null, "", address());
  else history.replaceState(null, "", address());
  listeners.forEach(listener => listener());
}

export function onChange(listener) {
  listeners.push(listener);
}

read();
window.addEventListener("popstate", () => {
  read();
  listeners.forEach(listener => listener());
});
