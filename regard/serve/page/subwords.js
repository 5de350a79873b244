// View 2: what the text is cut into, and how byte-pair encoding came to cut it like that (claim T6).

import { html, shown, whole } from "./drawing.js";
import { set, state } from "./state.js";
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

/** One line for each merge; what was just put together is marked. */
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

function merges(side) {
  const title = html("h3", {}, t("subwords.merges"));
  if (!side.merges.length)
    return html("section", { class: "card wide" }, title, html("p", { class: "soft" }, t("subwords.imported")));
  const words = side.text.split(/\s+/).filter(Boolean);
  const chosen = Math.min(Number(state.word), words.length - 1);
  const states = side.merges[chosen];
  const place = html("div", {}, replay(states, states.length - 1));
  const slider = html("input", {
    type: "range",
    min: 0,
    max: states.length - 1,
    value: states.length - 1,
    "data-key": "merge",
    "aria-label": t("subwords.step"),
    oninput: event => {
      place.replaceChildren(replay(states, Number(event.target.value)));
      tell();
    },
  });
  const told = html("output", {});
  const tell = () => {
    told.textContent = t("subwords.merge", { n: slider.value, all: states.length - 1 });
  };
  tell();
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
            "aria-pressed": String(state.side === name),
            "data-key": `side-${name}`,
            onclick: () => set({ side: name, word: 0 }),
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
          { "aria-pressed": String(n === chosen), "data-key": `word-${n}`, onclick: () => set({ word: n }) },
          word,
        ),
      ),
    ),
    html("label", { class: "slider" }, slider, told),
    place,
  );
}

export function draw(body, { look, model }) {
  const side = state.side === "target" ? look.target : look.source;
  body.append(
    html("p", { class: "soft hint" }, t("subwords.vocabulary", { size: whole(model.model.src_vocab_size) })),
    html("div", { class: "columns" }, cut(look.source, "source"), cut(look.target, "target")),
    merges(side),
  );
  return { source: look.source, target: look.target };
}
