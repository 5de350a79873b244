// View 0: the words a translation could have gone on with, what a word looked at, the n best, and the command for it all.

import { bare, bars, html, number, percent, shown, textOf } from "./drawing.js";
import { attended } from "./sentence.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

function chosenPlace(look) {
  const last = look.predictions.length - 1;
  if (state.place !== "") return Math.min(Number(state.place), last);
  const least = look.predictions.reduce((best, one, n) => (one.log_prob < look.predictions[best].log_prob ? n : best), 0);
  return least;
}

/** To begin with what stands before and this instead; to end there is a whole translation. */
function goOn(look, place, piece) {
  const before = look.target.pieces.slice(0, place);
  if (piece === "</s>") set({ target: textOf(before), prefix: "", place });
  else set({ prefix: textOf([...before, piece]), target: "", place });
}

function alternatives(look, place) {
  const one = look.predictions[place];
  const before = textOf(look.target.pieces.slice(0, place));
  const rows = one.best.map((other, n) => ({
    name: other.piece === "</s>" ? "■ </s>" : shown(other.piece),
    value: Math.exp(other.log_prob),
    text: percent(Math.exp(other.log_prob)),
    chosen: other.piece === one.piece,
    key: `other-${n}`,
    title: t("translate.from-here"),
    // Half a letter is no text to begin with.
    pick: textOf([...look.target.pieces.slice(0, place), other.piece]).includes("\ufffd")
      ? undefined
      : () => goOn(look, place, other.piece),
  }));
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("translate.others", { piece: bare(one.piece) || "␣" })),
    html(
      "p",
      { class: "soft" },
      t("translate.others.why", { before: before ? `“${before} …”` : t("translate.beginning"), rank: one.rank }),
    ),
    bars(rows, { most: 1, label: t("translate.others", { piece: one.piece }) }),
  );
}

function lookedAt(look, place) {
  const rows = attended(look, place).map((value, n) => ({
    name: bare(look.source.pieces[n]) || "␣",
    value,
    text: percent(value),
  }));
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("translate.looked", { piece: bare(look.predictions[place].piece) || "␣" })),
    html("p", { class: "soft" }, t("translate.looked.why", { layer: look.alignment.layer + 1 })),
    bars(rows, { most: 1 }),
  );
}

function nBest(look) {
  const rows = look.search.hypotheses.map((one, n) =>
    html(
      "tr",
      {},
      html("td", { class: "number" }, n + 1),
      html(
        "td",
        { dir: "auto" },
        html(
          "button",
          { class: "link", "data-key": `best-${n}`, onclick: () => set({ target: one.text, prefix: "", place: "" }) },
          one.text,
        ),
      ),
      html("td", { class: "number" }, number(one.log_prob, 2)),
      html("td", { class: "number" }, number(one.score, 3)),
    ),
  );
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("translate.n-best")),
    html("p", { class: "soft" }, t("translate.n-best.why")),
    html(
      "div",
      { class: "scroll" },
      html(
        "table",
        {},
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            ["#", t("target"), "log P", t("score")].map((word, n) => html("th", { class: n === 1 ? "" : "number" }, word)),
          ),
        ),
        html("tbody", {}, rows),
      ),
    ),
  );
}

function command(model) {
  const body = JSON.stringify({
    q: state.text,
    source: model.src_lang || "auto",
    target: model.tgt_lang,
    alternatives: Math.min(3, Number(state.beam) - 1),
  });
  const line = source.isFile
    ? `echo ${quoted(state.text)} | regard translate RUN --beam ${state.beam} --alpha ${state.alpha}`
    : `curl -s ${location.origin}${location.pathname.replace(/[^/]*$/, "")}translate -H 'Content-Type: application/json' -d ${quoted(body)}`;
  const done = html("span", { class: "soft", "aria-live": "polite" });
  const copy = html(
    "button",
    {
      "data-key": "copy",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(line);
          done.textContent = t("copied");
        } catch {
          done.textContent = t("copy.yourself");
        }
      },
    },
    t("copy"),
  );
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("translate.curl")),
    html("pre", { tabindex: 0 }, line),
    html("div", { class: "row" }, copy, done),
  );
}

export function draw(body, { look, model }) {
  const place = chosenPlace(look);
  body.append(
    html("p", { class: "soft hint" }, t("translate.hint")),
    html("div", { class: "columns" }, alternatives(look, place), lookedAt(look, place)),
    nBest(look),
    command(model),
  );
  return {
    text: look.source.text,
    translation: look.target.text,
    log_prob: look.log_prob,
    predictions: look.predictions,
    n_best: look.search.hypotheses,
    place,
    attended: attended(look, place),
  };
}
