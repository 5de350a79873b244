// View 7: decoding word by word, and teacher forcing beside autoregression (claim T1).

import { bars, html, number, percent, shown, textOf } from "./drawing.js";
import * as source from "./source.js";
import { FREE, piecesOf, set, state, within } from "./state.js";
import { named, t } from "./words.js";

/** Show the prefix, the next word, and its alternatives. */
function stepNodes(look, step) {
  const one = look.predictions[step];
  const facts = {
    prob: percent(Math.exp(one.log_prob)),
    rank: one.rank,
    entropy: number(one.entropy, 3),
    choices: number(Math.exp(one.entropy), 1),
  };
  const others = one.best.map(other => ({
    name: other.piece === "</s>" ? "■ </s>" : shown(other.piece),
    value: Math.exp(other.log_prob),
    text: percent(Math.exp(other.log_prob)),
    chosen: other.piece === one.piece,
  }));
  return [
    html(
      "p",
      { class: "so-far", dir: "auto" },
      html("span", { class: "token" }, "<s>"),
      look.target.pieces.slice(0, step).map(piece => html("span", { class: "token" }, named(piece))),
      html("span", { class: "token next" }, named(one.piece)),
    ),
    html("p", { class: "soft" }, t("decoding.facts", facts)),
    bars(others, { most: 1 }),
  ];
}

function stepper(look) {
  const last = look.predictions.length - 1;
  const place = html("div");
  const told = html("output");
  const show = step => {
    told.textContent = t("decoding.step", { n: step + 1, all: last + 1 });
    place.replaceChildren(...stepNodes(look, step));
    place.dataset.step = step;
    place.dataset.logProb = look.predictions[step].log_prob;
  };
  const at = within(state.step, last);
  const slider = html("input", {
    type: "range",
    min: 0,
    max: last,
    value: at,
    "data-key": "step",
    "aria-label": t("decoding.walk"),
    oninput: event => show(Number(event.target.value)),
    onchange: event => set({ step: event.target.value }),
  });
  const move = by => set({ step: within(Number(slider.value) + by, last) });
  show(at);
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("decoding.walk")),
    html(
      "div",
      { class: "row" },
      html("button", { "data-key": "back", onclick: () => move(-1), disabled: at === 0 }, "← " + t("decoding.back")),
      html("button", { "data-key": "on", onclick: () => move(1), disabled: at === last }, t("decoding.on") + " →"),
      html("label", { class: "slider" }, slider, told),
    ),
    place,
  );
}

function prefixEditor() {
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("decoding.prefix")),
    html("p", { class: "soft" }, t("decoding.prefix.why")),
    html("input", {
      type: "text",
      value: state.prefix_pieces ? textOf(piecesOf(state.prefix_pieces)) : state.prefix,
      "data-key": "prefix",
      dir: "auto",
      disabled: source.isFile,
      placeholder: t("decoding.prefix.none"),
      "aria-label": t("decoding.prefix"),
      onchange: event => set({ ...FREE, prefix: event.target.value.trim(), step: 0 }),
    }),
  );
}

function cell(piece, prob, kind) {
  const node = html(
    "td",
    { class: `tinted ${kind}` },
    piece === undefined ? "" : html("span", {}, named(piece)),
    prob === undefined ? "" : html("small", {}, percent(prob)),
  );
  if (prob !== undefined) node.style.setProperty("--share", `${Math.round(prob * 100)}%`);
  return node;
}

/** Compare two rows of predictions at the same positions: with the reference as input, and with the model's own words. */
function bothTable(forced, free, given, parting, length) {
  const sure = one => one && Math.exp(one.log_prob);
  const told = forced.predictions.map(one => one.best[0]);
  const own = free.predictions;
  const fed = (pieces, n, kind) => cell(n ? pieces[n - 1] : "<s>", undefined, kind);
  const would = (n, kind) => {
    const isWrong = told[n] && told[n].piece !== given[n];
    return cell(told[n]?.piece, sure(told[n]), isWrong ? `${kind} wrong` : kind);
  };
  const line = (name, make) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, t(name)),
      Array.from({ length }, (_, n) => make(n, n === parting ? "parting" : "")),
    );
  return html(
    "table",
    { class: "side", "data-divergence": parting },
    html(
      "tbody",
      {},
      line("decoding.fed", (n, kind) => fed(forced.target.pieces, n, kind)),
      line("decoding.forced", would),
      line("decoding.right", (n, kind) => cell(given[n], sure(forced.predictions[n]), kind)),
      html("tr", { class: "space" }, html("td", { colspan: length + 1 })),
      line("decoding.own-fed", (n, kind) => fed(free.target.pieces, n, kind)),
      line("decoding.free", (n, kind) => cell(own[n]?.piece, sure(own[n]), kind)),
    ),
  );
}

function sideBySide([forced, free], numbers) {
  const given = [...forced.target.pieces, "</s>"];
  const own = free.predictions;
  const length = Math.max(given.length, own.length);
  const parting = Array.from({ length }, (_, n) => n).find(n => given[n] !== own[n]?.piece) ?? -1;
  Object.assign(numbers, {
    reference: forced.target.text,
    free: free.target.text,
    first_divergence: parting,
    forced: forced.predictions,
    autoregression: own,
  });
  const apart = { n: parting + 1, given: named(given[parting] ?? "–"), own: named(own[parting]?.piece ?? "–") };
  return [
    html("div", { class: "scroll", "data-scroll": "side" }, bothTable(forced, free, given, parting, length)),
    html("p", {}, parting < 0 ? t("decoding.equal") : t("decoding.parts", apart)),
  ];
}

/** Return the reference for teacher forcing: the typed one, or one that differs from the model's own translation. */
function referenceOf({ search, target }) {
  if (state.reference) return { text: state.reference, question: { target: state.reference, target_pieces: undefined } };
  const other = search.hypotheses.find(one => one.text && one.text !== target.text);
  const { text, pieces } = other ? { ...other, pieces: other.pieces.slice(0, -1) } : target;
  return { text, question: { target: undefined, target_pieces: pieces } };
}

export function draw(body, { look, ask, later }) {
  const reference = referenceOf(look);
  const numbers = { predictions: look.predictions };
  const input = html("input", {
    type: "text",
    value: reference.text,
    "data-key": "reference",
    dir: "auto",
    disabled: source.isFile,
    "aria-label": t("decoding.reference"),
    onchange: event => set({ reference: event.target.value.trim() }),
  });
  const both = Promise.all([
    ask({ prefix: undefined, prefix_pieces: undefined, beam: 1, ...reference.question }),
    ask({ prefix: undefined, prefix_pieces: undefined, beam: 1, target: undefined, target_pieces: undefined }),
  ]);
  body.append(
    stepper(look),
    html(
      "section",
      { class: "card wide" },
      html("h3", {}, t("decoding.both")),
      html("p", { class: "soft" }, t("decoding.both.why")),
      html("label", { class: "line" }, t("decoding.reference"), input),
      later(both, answers => sideBySide(answers, numbers)),
    ),
    prefixEditor(),
  );
  return numbers;
}
