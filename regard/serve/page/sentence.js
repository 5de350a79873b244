// The sentence above every view: the input field, and its translation as it arrives.

import { html, mean, number, percent, textOf } from "./drawing.js";
import * as source from "./source.js";
import { ANEW, isTyping, piecesOf, set, setSoon, state, within } from "./state.js";
import { languageName, named, t } from "./words.js";

const PAUSE = 180; // milliseconds without a key press, before a request is sent
const MOST_PARTS = 1000;
const LIMITS = { beam: { min: 1, max: 16, step: 1 }, alpha: { min: 0, max: 5, step: 0.1 } };
const card = {};
let known = { text: null, parts: [] };
let look; // the one on the page

export function questionOf({ run, text, part, target, target_pieces, prefix, prefix_pieces, beam, alpha }) {
  return {
    run,
    text: text ?? "",
    part: within(part, MOST_PARTS),
    target: target || undefined,
    target_pieces: piecesOf(target_pieces),
    prefix: prefix || undefined,
    prefix_pieces: piecesOf(prefix_pieces),
    beam: Number(beam),
    alpha: Number(alpha),
  };
}

/** Handle typing. Characters that an input method is still composing are not sent. */
function hear(event) {
  const isComposing = event.type !== "compositionend" && event.isComposing;
  if (isTyping() || card.text.value !== state.text)
    setSoon({ ...ANEW, text: card.text.value }, isComposing ? undefined : PAUSE);
}

function setting(name) {
  const input = html("input", {
    type: "number",
    ...LIMITS[name],
    "data-key": name,
    disabled: source.isFile,
    onchange: event => {
      if (event.target.reportValidity() && event.target.value) set({ [name]: event.target.value, node: "" });
    },
  });
  return { input, name: html("span") };
}

export function makeSentence(box) {
  const typing = { oninput: hear, oncompositionend: hear };
  const still = { rows: 2, id: "text", "data-key": "text", spellcheck: "false", dir: "auto", readonly: source.isFile };
  Object.assign(card, {
    from: html("label", { class: "over", for: "text" }),
    text: html("textarea", { ...still, ...typing }),
    parts: html("div", { class: "choices", role: "group" }),
    pieces: html("div", { class: "pieces", dir: "auto" }),
    to: html("div", { class: "over" }),
    output: html("div", { class: "output", dir: "auto", "aria-live": "polite" }),
    facts: html("p", { class: "facts" }),
    beam: setting("beam"),
    alpha: setting("alpha"),
  });
  const settings = [card.beam, card.alpha].map(one => html("label", {}, one.name, one.input));
  const foot = html("div", { class: "foot" }, card.facts, html("div", { class: "settings" }, settings));
  box.replaceChildren(
    html("div", { class: "card" }, card.from, card.text, card.parts, card.pieces),
    html("div", { class: "card" }, card.to, card.output, foot),
  );
}

/** Return the attention of a target position: the mean over the heads of the layer that aligns best, without EOS. Return
 * undefined for a model without attention. */
export function attended({ alignment, attention, source: { pieces } }, place) {
  if (!alignment) return undefined;
  const heads = attention.cross[alignment.layer].weights;
  const row = Math.min(place + (alignment.fed_in ? 1 : 0), heads[0].length - 1);
  return pieces.map((_, column) => mean(heads.map(head => head[row][column])));
}

/** Return the position of the address; by default, the one where the model was least sure. */
export function chosenPlace({ predictions }) {
  if (state.place !== "") return within(state.place, predictions.length - 1);
  return predictions.reduce((least, one, n) => (one.log_prob < predictions[least].log_prob ? n : least), 0);
}

function tint(node, share) {
  node.style.setProperty("--share", `${Math.round(100 * Math.min(1, share))}%`);
}

function light(weights) {
  card.pieces.querySelectorAll(".piece").forEach((node, n) => {
    node.classList.toggle("lit", weights !== undefined);
    tint(node, weights ? weights[n] ** 0.6 : 0);
  });
}

function lightTarget(column) {
  [...card.output.querySelectorAll(".piece")].forEach((node, place) => {
    if (place < look.target.pieces.length)
      tint(node, column === undefined ? Math.exp(look.predictions[place].log_prob) : attended(look, place)[column] ** 0.6);
  });
}

function drawPieces() {
  const spans = look.source.pieces.flatMap((piece, n) => [
    n && piece.startsWith("▁") ? html("wbr") : "",
    html(
      "span",
      {
        class: piece.startsWith("▁") ? "piece start" : "piece",
        onpointerenter: look.alignment && (() => lightTarget(n)),
        onpointerleave: () => lightTarget(),
      },
      named(piece),
    ),
  ]);
  card.pieces.replaceChildren(...spans);
}

function wordNode(piece, place) {
  const isEnd = piece === "</s>";
  return html(
    "button",
    {
      class: `piece${piece.startsWith("▁") || isEnd ? " start" : ""}${isEnd ? " end" : ""}`,
      "data-key": `piece-${place}`,
      "aria-label": isEnd ? "</s>" : undefined,
      onclick: () => set({ view: "translate", place }),
      onpointerenter: () => light(attended(look, place)),
      onpointerleave: () => light(),
      onfocus: () => light(attended(look, place)),
      onblur: () => light(),
    },
    named(piece),
  );
}

/** Draw the translation. Nodes are replaced only where words change, because screen readers read new nodes aloud. */
function drawOutput() {
  const words = look.predictions.map(one => one.piece);
  if (card.output.dataset.words !== words.join(" ")) card.output.replaceChildren(...words.map(wordNode));
  card.output.dataset.words = words.join(" ");
  const place = state.view === "translate" ? chosenPlace(look) : -1;
  [...card.output.children].forEach((node, n) => {
    const logProb = look.predictions[n].log_prob;
    node.dataset.logProb = logProb;
    node.title = percent(Math.exp(logProb));
    node.setAttribute("aria-pressed", String(n === place));
    tint(node, Math.exp(logProb));
  });
}

/** Draw the forced prefix or target, with a button to release it. */
function held() {
  return ["prefix", "target"].flatMap(name => {
    const pieces = piecesOf(state[`${name}_pieces`]);
    if (!pieces && !state[name]) return [];
    const words = pieces ? textOf(pieces) || "■" : state[name];
    const release = () => set({ [name]: "", [`${name}_pieces`]: "" });
    const said = `${t(`held.${name}`)} “${words}” ×`;
    return [html("button", { class: "chip", "data-key": `held-${name}`, title: t("release"), onclick: release }, said)];
  });
}

/** Draw the choice of a part of a long text. If one part cannot be inspected, the others remain on offer. */
function drawParts() {
  if (look) known = { text: state.text, parts: look.parts };
  const parts = known.text === state.text && known.parts.length > 1 ? known.parts : [];
  const at = within(state.part, MOST_PARTS);
  const short = text => ([...text].length > 24 ? [...text].slice(0, 23).join("") + "…" : text);
  card.parts.setAttribute("aria-label", t("parts"));
  card.parts.style.display = parts.length ? "" : "none";
  card.parts.replaceChildren(
    ...parts.map((text, n) => {
      const pick = () => set({ ...ANEW, part: n });
      const told = { "aria-pressed": String(n === at), "data-key": `part-${n}`, title: text, onclick: pick };
      return html("button", { ...told, dir: "auto" }, `${n + 1} ${short(text)}`);
    }),
  );
}

/** Mark the output as busy, because it does not yet belong to the typed text. */
export function markBusy() {
  card.output.setAttribute("aria-busy", "true");
  card.to.textContent = [card.language, t("asking")].filter(Boolean).join(" · ");
}

export function drawSentence(found, model, problem) {
  look = found;
  if (!isTyping() && card.text.value !== (state.text ?? "")) card.text.value = state.text ?? "";
  card.text.placeholder = t("type");
  card.from.textContent = languageName(model?.src_lang) || t("source");
  card.language = languageName(model?.tgt_lang) || t("target");
  card.to.textContent = card.language;
  card.output.removeAttribute("aria-busy");
  for (const name of ["beam", "alpha"]) {
    const { input, name: word } = card[name];
    word.textContent = t(name);
    if (input.defaultValue !== state[name]) input.value = input.defaultValue = state[name];
  }
  drawParts();
  card.facts.replaceChildren(...held());
  if (look) {
    drawPieces();
    drawOutput();
    card.facts.prepend(html("span", { title: t("log-prob.why") }, `log P = ${number(look.log_prob, 2)}`));
  } else {
    card.pieces.replaceChildren();
    delete card.output.dataset.words;
    card.output.replaceChildren(html("span", { class: "soft" }, problem ?? ""));
  }
}
