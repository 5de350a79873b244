// View 2: the subwords of the text, and the merges of byte-pair encoding that produce them (claim T6).

import { html, shown, whole } from "./drawing.js";
import { set, state, within } from "./state.js";
import { t } from "./words.js";

function cut(side, name) {
  const groups = [];
  side.pieces.forEach((piece, n) => {
    const word = side.words[n] ?? 0;
    (groups[word] ??= []).push(
      html("span", { class: "token" }, html("b", {}, shown(piece)), html("small", {}, side.ids[n])),
    );
  });
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t(name)),
    html(
      "p",
      { class: "soft" },
      t("subwords.counts", {
        words: side.text.split(/\s+/).filter(Boolean).length,
        letters: [...side.text].length,
        pieces: side.pieces.length,
      }),
    ),
    html(
      "div",
      { class: "tokens", "data-pieces": side.pieces.join(" "), "data-ids": side.ids.join(" ") },
      groups.filter(Boolean).map(group => html("span", { class: "word" }, group)),
    ),
  );
}

/** Draw one line for each merge, with the new symbol marked. */
function replay(states, upTo) {
  const rows = states.slice(0, upTo + 1).map((symbols, n) => {
    const before = n ? states[n - 1] : symbols;
    const fresh = n ? symbols.findIndex((symbol, at) => symbol !== before[at]) : -1;
    return html(
      "div",
      { class: "merge" },
      html("span", { class: "count" }, n),
      symbols.map((symbol, at) => html("span", { class: `token${at === fresh ? " fresh" : ""}` }, shown(symbol))),
    );
  });
  return html("div", { class: "merges" }, rows);
}

/** Draw a word's merges, from its letters up to the merge that a slider selects. */
function wordMerges(states) {
  const last = states.length - 1;
  const at = state.merge === "" ? last : within(state.merge, last);
  const place = html("div");
  const told = html("output");
  const show = n => {
    place.replaceChildren(replay(states, n));
    told.textContent = t("subwords.merge", { n, all: last });
  };
  const slider = html("input", {
    type: "range",
    min: 0,
    max: last,
    value: at,
    "data-key": "merge",
    "aria-label": t("subwords.step"),
    oninput: event => show(Number(event.target.value)),
    onchange: event => set({ merge: event.target.value }),
  });
  show(at);
  return [html("label", { class: "slider" }, slider, told), place];
}

function merges({ source, target }) {
  const title = html("h3", {}, t("subwords.merges"));
  const side = state.side === "target" ? target : source;
  if (!source.merges.length)
    return html("section", { class: "card wide" }, title, html("p", { class: "soft" }, t("subwords.imported")));
  const words = side.text.split(/\s+/).filter(Boolean).slice(0, side.merges.length);
  const chosen = within(state.word, words.length - 1);
  return html(
    "section",
    { class: "card wide" },
    title,
    html("p", { class: "soft" }, t("subwords.merges.why")),
    html(
      "div",
      { class: "choices" },
      ["source", "target"].map(name =>
        html(
          "button",
          {
            "aria-pressed": String((name === "target") === (side === target)),
            "data-key": `side-${name}`,
            onclick: () => set({ side: name, word: 0, merge: "" }),
          },
          t(name),
        ),
      ),
    ),
    html(
      "div",
      { class: "choices" },
      words.map((word, n) =>
        html(
          "button",
          { "aria-pressed": String(n === chosen), "data-key": `word-${n}`, onclick: () => set({ word: n, merge: "" }) },
          word,
        ),
      ),
    ),
    words.length ? wordMerges(side.merges[chosen]) : html("p", { class: "soft" }, t("subwords.empty")),
  );
}

export function draw(body, { look, model }) {
  body.append(
    html("p", { class: "soft hint" }, t("subwords.vocabulary", { size: whole(model.model.src_vocab_size) })),
    html("div", { class: "columns" }, cut(look.source, "source"), cut(look.target, "target")),
    merges(look),
  );
  return { source: look.source, target: look.target };
}
