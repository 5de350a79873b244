// The sentence above every view: what is typed, and its translation as it comes.

import { bare, html, mean, number, percent } from "./drawing.js";
import * as source from "./source.js";
import { set, state } from "./state.js";
import { languageName, t } from "./words.js";

const PAUSE = 180; // milliseconds without a key, before a model is asked
const FORGET = { target: "", prefix: "", place: "", reference: "", later: "", node: "", step: "0", query: "0", word: "0" };
let text;
let pieces;
let output;
let facts;
let settings;
let waiting;

export function questionOf({ run, text: typed, target, prefix, beam, alpha }) {
  return {
    run,
    text: typed,
    target: target || undefined,
    prefix: prefix || undefined,
    beam: Number(beam),
    alpha: Number(alpha),
  };
}

export function makeSentence(box) {
  text = html("textarea", {
    rows: 2,
    "data-key": "text",
    spellcheck: "false",
    dir: "auto",
    readonly: source.isFile,
    oninput: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => set({ text: text.value, ...FORGET }), PAUSE);
    },
  });
  pieces = html("div", { class: "pieces", dir: "auto" });
  output = html("div", { class: "output", dir: "auto", "aria-live": "polite" });
  facts = html("p", { class: "facts" });
  settings = html("div", { class: "settings" });
  box.replaceChildren(
    html("div", { class: "card" }, html("label", { class: "over" }), text, pieces),
    html("div", { class: "card" }, html("div", { class: "over" }), output, html("div", { class: "foot" }, facts, settings)),
  );
}

/** What a place of the target looked at: the mean of the heads of the layer that aligns best, EOS left out. */
export function attended(look, place) {
  const { layer, fed_in: fedIn } = look.alignment;
  const heads = look.attention.cross[layer].weights;
  const row = Math.min(place + (fedIn ? 1 : 0), heads[0].length - 1);
  return look.source.pieces.map((_, column) => mean(heads.map(head => head[row][column])));
}

function tint(node, share) {
  node.style.setProperty("--share", `${Math.round(100 * Math.min(1, share))}%`);
}

function light(weights) {
  pieces.querySelectorAll(".piece").forEach((node, n) => {
    node.classList.toggle("lit", weights !== undefined);
    tint(node, weights ? weights[n] ** 0.6 : 0);
  });
}

function lightTarget(look, column) {
  [...output.querySelectorAll(".piece")].forEach((node, place) => {
    if (place < look.target.pieces.length)
      tint(node, column === undefined ? Math.exp(look.predictions[place].log_prob) : attended(look, place)[column] ** 0.6);
  });
}

function setting(name, value, step, least) {
  return html(
    "label",
    {},
    t(name),
    html("input", {
      type: "number",
      value,
      step,
      min: least,
      max: name === "beam" ? 16 : 5,
      "data-key": name,
      disabled: source.isFile,
      onchange: event => {
        if (event.target.checkValidity() && event.target.value) set({ [name]: event.target.value, node: "" });
      },
    }),
  );
}

export function drawSentence(look, model, problem) {
  if (document.activeElement !== text && text.value !== state.text) text.value = state.text;
  text.placeholder = t("type");
  text.parentElement.querySelector(".over").textContent = languageName(model?.src_lang) || t("source");
  text.setAttribute("aria-label", t("source"));
  output.parentElement.querySelector(".over").textContent = languageName(model?.tgt_lang) || t("target");
  settings.replaceChildren(setting("beam", state.beam, 1, 1), setting("alpha", state.alpha, 0.1, 0));
  pieces.replaceChildren();
  facts.replaceChildren();
  for (const name of ["prefix", "target"]) {
    if (state[name])
      facts.append(
        html(
          "button",
          { class: "chip", "data-key": name, title: t("release"), onclick: () => set({ [name]: "" }) },
          `${t(`held.${name}`)} “${state[name]}” ×`,
        ),
      );
  }
  if (!look) {
    output.replaceChildren(html("span", { class: "soft" }, problem ?? ""));
    return;
  }
  look.source.pieces.forEach((piece, n) =>
    pieces.append(
      n && piece.startsWith("▁") ? html("wbr") : "",
      html(
        "span",
        {
          class: piece.startsWith("▁") ? "piece start" : "piece",
          onpointerenter: () => lightTarget(look, n),
          onpointerleave: () => lightTarget(look),
        },
        bare(piece) || "␣",
      ),
    ),
  );
  output.replaceChildren(
    ...look.predictions.map((one, place) => {
      const isEnd = place === look.target.pieces.length;
      const node = html(
        "button",
        {
          class: `piece${one.piece.startsWith("▁") || isEnd ? " start" : ""}${isEnd ? " end" : ""}`,
          "data-key": `piece-${place}`,
          "data-log-prob": one.log_prob,
          title: `${percent(Math.exp(one.log_prob))}`,
          "aria-pressed": String(state.view === "translate" && state.place === String(place)),
          onclick: () => set({ view: "translate", place }),
          onpointerenter: () => light(attended(look, place)),
          onpointerleave: () => light(),
          onfocus: () => light(attended(look, place)),
          onblur: () => light(),
        },
        isEnd ? "■" : bare(one.piece) || "␣",
      );
      if (isEnd) node.setAttribute("aria-label", "</s>");
      tint(node, Math.exp(one.log_prob));
      return node;
    }),
  );
  facts.prepend(html("span", { title: t("log-prob.why") }, `log P = ${number(look.log_prob, 2)}`));
}
