// View 7: a word at a time; and teacher forcing beside autoregression (claim T1).

import { bars, html, number, percent, shown, textOf } from "./drawing.js";
import * as source from "./source.js";
import { FREE, piecesOf, set, state, within } from "./state.js";
import { named, t } from "./words.js";

function stepper(look) {
  const last = look.predictions.length - 1;
  const place = html("div");
  const told = html("output");
  const show = step => {
    const one = look.predictions[step];
    told.textContent = t("decoding.step", { n: step + 1, all: last + 1 });
    place.replaceChildren(
      html(
        "p",
        { class: "so-far", dir: "auto" },
        html("span", { class: "token" }, "<s>"),
        look.target.pieces.slice(0, step).map(piece => html("span", { class: "token" }, named(piece))),
        html("span", { class: "token next" }, named(one.piece)),
      ),
      html(
        "p",
        { class: "soft" },
        t("decoding.facts", {
          prob: percent(Math.exp(one.log_prob)),
          rank: one.rank,
          entropy: number(one.entropy, 3),
          choices: number(Math.exp(one.entropy), 1),
        }),
      ),
      bars(
        one.best.map(other => ({
          name: other.piece === "</s>" ? "■ </s>" : shown(other.piece),
          value: Math.exp(other.log_prob),
          text: percent(Math.exp(other.log_prob)),
          chosen: other.piece === one.piece,
        })),
        { most: 1 },
      ),
    );
    place.dataset.step = step;
    place.dataset.logProb = one.log_prob;
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

/** Two lines over the same places: what the model says when it is given the right words, and when it is given its own. */
function sideBySide([forced, free], numbers) {
  const given = [...forced.target.pieces, "</s>"];
  const told = forced.predictions.map(one => one.best[0]);
  const own = free.predictions;
  const length = Math.max(given.length, own.length);
  const parts = Array.from({ length }, (_, n) => n).find(n => given[n] !== own[n]?.piece) ?? -1;
  Object.assign(numbers, {
    reference: forced.target.text,
    free: free.target.text,
    first_divergence: parts,
    forced: forced.predictions,
    autoregression: own,
  });
  const cell = (piece, prob, kind) => {
    const node = html(
      "td",
      { class: `tinted ${kind}` },
      piece === undefined ? "" : html("span", {}, named(piece)),
      prob === undefined ? "" : html("small", {}, percent(prob)),
    );
    if (prob !== undefined) node.style.setProperty("--share", `${Math.round(prob * 100)}%`);
    return node;
  };
  const line = (name, make) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, t(name)),
      Array.from({ length }, (_, n) => make(n, n === parts ? "parting" : "")),
    );
  const fed = forced.target.pieces;
  const freeFed = free.target.pieces;
  return [
    html(
      "div",
      { class: "scroll", "data-scroll": "side" },
      html(
        "table",
        { class: "side", "data-divergence": parts },
        html(
          "tbody",
          {},
          line("decoding.fed", (n, kind) => cell(n ? fed[n - 1] : "<s>", undefined, kind)),
          line("decoding.forced", (n, kind) =>
            cell(
              told[n]?.piece,
              told[n] && Math.exp(told[n].log_prob),
              `${kind}${told[n] && told[n].piece !== given[n] ? " wrong" : ""}`,
            ),
          ),
          line("decoding.right", (n, kind) =>
            cell(given[n], forced.predictions[n] && Math.exp(forced.predictions[n].log_prob), kind),
          ),
          html("tr", { class: "space" }, html("td", { colspan: length + 1 })),
          line("decoding.own-fed", (n, kind) => cell(n ? freeFed[n - 1] : "<s>", undefined, kind)),
          line("decoding.free", (n, kind) => cell(own[n]?.piece, own[n] && Math.exp(own[n].log_prob), kind)),
        ),
      ),
    ),
    html(
      "p",
      {},
      parts < 0
        ? t("decoding.equal")
        : t("decoding.parts", {
            n: parts + 1,
            given: named(given[parts] ?? "–"),
            own: named(own[parts]?.piece ?? "–"),
          }),
    ),
  ];
}

/** A translation to be given: what was typed, or another than the model's own, so that there is something to compare. */
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
