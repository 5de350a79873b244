// Fetches all data: from the server or, in a file that `regard look` wrote, from the file itself.

const embedded = JSON.parse(document.getElementById("look")?.textContent ?? "null");
const DEFAULTS = {
  part: 0,
  target: "",
  prefix: "",
  beam: 4,
  alpha: 0.6,
  score_scale: null,
  positions: true,
  causal: true,
};
const WHOLE = { most: 12, answers: new Map() }; // looks, of which each may be megabytes
const SMALL = { most: 80, answers: new Map() };
let turn = 0;

export const isFile = embedded !== null;

/** The state of the page for which a file was written, by the names of the address. */
export const opening = embedded?.opening ?? {};

/** Raised for a question that only a running model can answer. */
export class NeedsModel extends Error {}

/** Raised with the server's error message, which is empty if the server gave none. */
export class Refused extends Error {}

/** Raised for a question whose answer is no longer needed. */
export class Over extends Error {}

/** Return a key that is the same for equal questions, whatever the order of their fields, and with or without defaults. */
function keyOf(question) {
  const told = Object.entries(question).filter(
    ([name, value]) =>
      value !== undefined && value !== null && value !== DEFAULTS[name] && !(name === "heads_off" && value.length === 0),
  );
  return JSON.stringify(told.sort(([one], [other]) => (one < other ? -1 : 1)));
}

const keyFor = (path, question = {}) => path + keyOf(question);

async function answer(path, question, signal) {
  const told = question && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  };
  try {
    const response = await fetch(path, { ...told, signal });
    const body = await response.json().catch(() => ({}));
    if (signal?.aborted) throw new Over();
    if (response.ok) return body;
    const said = body.detail ?? body.error ?? body.message;
    throw new Refused(typeof said === "string" ? said : `${response.status} ${response.statusText}`);
  } catch (problem) {
    if (signal?.aborted) throw new Over();
    throw problem instanceof Refused ? problem : new Refused("");
  }
}

/** Cache answers, because views ask again whenever they are drawn. The least recently used answer is dropped first. */
function remembered(kept, path, question, shortened = whole => whole) {
  const key = keyFor(path, question);
  const { answers, most } = kept;
  const known = answers.get(key);
  const one = known ?? { text: question?.text, controller: new AbortController(), isDone: false };
  answers.delete(key);
  answers.set(key, one);
  one.turn = turn;
  if (!known) {
    one.coming = answer(path, question, one.controller.signal).then(shortened);
    one.coming.then(
      () => {
        one.isDone = true;
      },
      () => {
        if (answers.get(key) === one) answers.delete(key);
      },
    );
    if (answers.size > most) answers.delete(answers.keys().next().value);
  }
  return one.coming;
}

/** Abort requests that are no longer needed, so that the server stops working on them. */
function hangUp({ answers }, isOver) {
  for (const [key, one] of answers)
    if (!one.isDone && isOver(one, key)) {
      answers.delete(key);
      one.controller.abort();
    }
}

/** Begin to draw the page for this question, and abort requests for other looks and other texts. */
export function begin(question) {
  turn += 1;
  hangUp(WHOLE, (_, key) => key !== keyFor("inspect", question));
  hangUp(SMALL, one => one.text !== undefined && one.text !== question.text);
}

/** End the drawing, and abort requests that an earlier drawing made and this one did not. */
export function end() {
  hangUp(SMALL, one => one.turn !== turn);
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
  return embedded ? embedded.models[run] : remembered(SMALL, `runs/${encodeURIComponent(run)}`);
}

/** Fetch the training curves, without a cache because the run may be in training. */
export async function training(run) {
  return embedded ? embedded.training[run] : answer(`runs/${encodeURIComponent(run)}/training`);
}

export async function inspect(question) {
  return embedded ? found(embedded.inspect, question) : remembered(WHOLE, "inspect", question);
}

/** Return the part of a changed model's answer that views compare. */
const compared = ({ target, log_prob, predictions, search }) => ({
  target,
  log_prob,
  predictions,
  search: { hypotheses: search.hypotheses },
});

export async function inspectChanged(question) {
  return embedded ? found(embedded.inspect, question) : remembered(SMALL, "inspect", question, compared);
}

export async function inspectHead(question, head) {
  const whole = { ...question, ...head };
  return embedded ? found(embedded.heads, whole) : remembered(SMALL, "inspect/head", whole);
}

/** Translate a whole text as the API does for any client. */
export async function translate(question) {
  if (embedded) throw new NeedsModel();
  return remembered(SMALL, "translate", question);
}
