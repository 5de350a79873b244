// All numbers come through here: from the server, or, in a file that `regard look` wrote, from the file itself.

const embedded = JSON.parse(document.getElementById("look")?.textContent ?? "null");
const MOST_KEPT = 60;
const kept = new Map();
const DEFAULTS = { target: "", prefix: "", beam: 4, alpha: 0.6, score_scale: null, positions: true, causal: true };

export const isFile = embedded !== null;

/** A question that only a running model can answer. */
export class NeedsModel extends Error {}

/** What the server said instead of an answer; nothing, if it said nothing. */
export class Refused extends Error {}

/** The same question has the same key, however it was put. */
function keyOf(question) {
  const told = Object.entries(question).filter(
    ([name, value]) =>
      value !== undefined && value !== null && value !== DEFAULTS[name] && !(name === "heads_off" && value.length === 0),
  );
  return JSON.stringify(told.sort(([one], [other]) => (one < other ? -1 : 1)));
}

async function answer(path, question) {
  const told = question && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  };
  const response = await fetch(path, told).catch(() => {
    throw new Refused("");
  });
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  const said = body.detail ?? body.error ?? body.message;
  throw new Refused(typeof said === "string" ? said : `${response.status} ${response.statusText}`);
}

/** Answers are kept: a view may ask again whenever it is drawn. */
function remembered(path, question) {
  const key = path + keyOf(question);
  if (!kept.has(key)) {
    if (kept.size >= MOST_KEPT) kept.delete(kept.keys().next().value);
    const coming = answer(path, question);
    coming.catch(() => kept.delete(key));
    kept.set(key, coming);
  }
  return kept.get(key);
}

function found(answers, question) {
  const key = keyOf(question);
  const match = answers.find(one => keyOf(one.question) === key);
  if (!match) throw new NeedsModel();
  return match.answer;
}

export async function runs() {
  return embedded ? embedded.runs : answer("runs");
}

export async function model(run) {
  return embedded ? embedded.models[run] : answer(`runs/${encodeURIComponent(run)}`);
}

/** Read anew each time: a run may be in training. */
export async function training(run) {
  return embedded ? embedded.training[run] : answer(`runs/${encodeURIComponent(run)}/training`);
}

export async function inspect(question) {
  return embedded ? found(embedded.inspect, question) : remembered("inspect", question);
}

export async function inspectHead(question, head) {
  const whole = { ...question, ...head };
  return embedded ? found(embedded.heads, whole) : remembered("inspect/head", whole);
}

/** What a file was written about, in the words of the address. */
export const opening = embedded?.opening ?? {};
