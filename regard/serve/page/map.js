// View 1: Figure 1, drawn from the model's own configuration, with this sentence's shapes on its arrows.

import { html, mean, number, percent, svg, whole } from "./drawing.js";
import { set, state } from "./state.js";
import { t } from "./words.js";

const WIDE = 230;
const TALL = 42;
const GAP = 30;
const ENCODER = 196;
const DECODER = 586;
const WIDTH = 790;
const VIEW_OF = {
  inputs: "subwords",
  outputs: "decoding",
  embedding: "subwords",
  positions: "positions",
  self: "heads",
  masked: "masks",
  cross: "heads",
  add: "residual",
  norm: "residual",
  ffn: "residual",
  linear: "residual",
  softmax: "decoding",
  result: "beam",
};

const FIRST = "cross.decoder";
const SUBLAYERS = { encoder: ["self", "ffn"], decoder: ["masked", "cross", "ffn"] };

/** A layer's blocks from the bottom up: each sub-layer in its residual connection, normalised after or before. */
function layerBlocks(sublayers, isPre) {
  return sublayers.flatMap((kind, sublayer) =>
    isPre
      ? [{ kind: "norm", sublayer, opens: true }, { kind }, { kind: "add", sublayer, closes: true }]
      : [
          { kind, opens: true },
          { kind: "add", sublayer, closes: true },
        ],
  );
}

function shapes(model, look) {
  const S = look.source.pieces.length + 1;
  const T = look.target.pieces.length + 1;
  return {
    S,
    T,
    D: model.d_model,
    H: model.num_heads,
    K: model.d_model / model.num_heads,
    F: model.d_ff,
    V: model.tgt_vocab_size,
  };
}

function detail(kind, z) {
  if (kind === "self") return `${z.H} × (${z.S} × ${z.K}) → ${z.H} × ${z.S} × ${z.S}`;
  if (kind === "masked") return `${z.H} × (${z.T} × ${z.K}) → ${z.H} × ${z.T} × ${z.T}`;
  if (kind === "cross") return `${z.H} × (${z.T} × ${z.K}) → ${z.H} × ${z.T} × ${z.S}`;
  return "";
}

/** What tells about itself when it is chosen. Its id is its kind, its stack and, where there are several, its number. */
function block(id, look, label, ...children) {
  const open = () => set({ block: id });
  const isChosen = (state.block || FIRST) === id;
  return svg(
    "g",
    {
      class: `block ${look}${isChosen ? " chosen" : ""}`,
      tabindex: 0,
      role: "button",
      "aria-pressed": String(isChosen),
      "data-key": `block-${id}`,
      "data-block": id,
      "aria-label": label,
      onclick: open,
      onkeydown: event => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          open();
        }
      },
    },
    children,
  );
}

function blockNode(kind, x, y, z, model, where, sublayer) {
  const name = kind === "add" ? t(model.norm === "pre" ? "map.add" : "map.add-norm") : t(`map.${kind}`);
  const inside =
    kind === "ffn"
      ? `${z.D} → ${z.F} → ${z.D}`
      : kind === "embedding"
        ? `${whole(where === "encoder" ? model.src_vocab_size : z.V)} × ${z.D}`
        : kind === "linear"
          ? `${z.D} × ${whole(z.V)}`
          : detail(kind, z);
  return block(
    sublayer === undefined ? `${kind}.${where}` : `${kind}.${where}.${sublayer}`,
    kind,
    `${name}. ${inside}`,
    svg("rect", { x: x - WIDE / 2, y, width: WIDE, height: TALL, rx: 8 }),
    svg("text", { x, y: y + (inside ? 18 : 26), "text-anchor": "middle", class: "name" }, name),
    inside && svg("text", { x, y: y + 34, "text-anchor": "middle", class: "inside" }, inside),
  );
}

/** What goes into a stack or comes out: a name without a box. */
function endNode(kind, x, y, where) {
  const name = t(`map.${kind}`);
  return block(
    `${kind}.${where}`,
    "plain",
    name,
    svg("rect", { x: x - WIDE / 2, y, width: WIDE, height: 32, rx: 8 }),
    svg("text", { x, y: y + 20, "text-anchor": "middle", class: "name" }, name),
  );
}

function arrow(x, from, to, label, side = 1) {
  return [
    svg("path", { class: "arrow", d: `M${x} ${from}V${to + 6}`, "marker-end": "url(#tip)" }),
    label &&
      svg(
        "text",
        { class: "shape", x: x + 8 * side, y: (from + to) / 2 + 4, "text-anchor": side > 0 ? "start" : "end" },
        label,
      ),
  ].filter(Boolean);
}

/** One stack, from its tokens up; returns where its blocks are. */
function column(picture, where, x, bottom, z, model) {
  const n = where === "encoder" ? z.S : z.T;
  const shape = `${n} × ${z.D}`;
  const outward = where === "encoder" ? -1 : 1;
  const inward = -outward; // where no bypass runs
  const y = bottom - 24 - GAP - TALL;
  const plus = y - GAP - 8;
  picture.append(
    endNode(where === "encoder" ? "inputs" : "outputs", x, bottom - 24, where),
    ...arrow(x, bottom - 24, y + TALL, String(n), inward),
    blockNode("embedding", x, y, z, model, where),
    ...arrow(x, y, plus + 9, shape, inward),
    svg("circle", { class: "plus", cx: x, cy: plus, r: 10 }),
    svg("text", { x, y: plus + 5, "text-anchor": "middle", class: "name" }, "+"),
    positionsNode(x + outward * 118, plus, where, x + outward * 10),
  );
  const found = layer(picture, where, x, plus - 10, z, model);
  const groupBottom = plus - 10 - GAP + 8;
  const height = groupBottom - found.top;
  picture.prepend(
    svg("rect", { class: "stack", x: x - WIDE / 2 - 30, y: found.top - 14, width: WIDE + 60, height: height + 14, rx: 14 }),
  );
  const beside = { x: x + outward * (WIDE / 2 + 40), y: found.top + height / 2 };
  picture.append(
    svg("text", { class: "times", ...beside, "text-anchor": outward < 0 ? "end" : "start" }, `${model[`${where}_layers`]} ×`),
  );
  if (model.norm !== "pre") return found;
  const top = found.top - GAP - 8 - TALL;
  picture.append(
    ...arrow(x, found.top, top + TALL, shape, inward),
    blockNode("norm", x, top, z, model, where, SUBLAYERS[where].length),
  );
  return { ...found, top };
}

/** The blocks of one layer, each sub-layer with the bypass around it. */
function layer(picture, where, x, bottom, z, model) {
  const shape = `${where === "encoder" ? z.S : z.T} × ${z.D}`;
  const outward = where === "encoder" ? -1 : 1;
  const found = { top: bottom };
  let opened = bottom;
  layerBlocks(SUBLAYERS[where], model.norm === "pre").forEach(({ kind, sublayer, opens, closes }, index) => {
    const top = found.top - GAP - (index === 0 ? 10 : 0) - TALL;
    if (opens) opened = top + TALL + 14;
    picture.append(...arrow(x, found.top, top + TALL, shape, -outward));
    if (closes)
      picture.append(
        svg("path", {
          class: "arrow bypass",
          d: `M${x} ${opened}H${x + outward * (WIDE / 2 + 16)}V${top + TALL / 2}H${x + outward * (WIDE / 2 + 5)}`,
          "marker-end": "url(#tip)",
        }),
      );
    picture.append(blockNode(kind, x, top, z, model, where, sublayer));
    found[kind] ??= top;
    found.top = top;
  });
  return found;
}

function positionsNode(x, y, where, to) {
  const wave = Array.from(
    { length: 25 },
    (_, n) => `${x - 12 + n} ${(y + 7 * Math.sin((n / 24) * 2 * Math.PI)).toFixed(1)}`,
  ).join("L");
  const edge = x < to ? x + 17 : x - 17;
  return block(
    `positions.${where}`,
    "wave",
    t("map.positions"),
    svg("circle", { cx: x, cy: y, r: 17 }),
    svg("path", { d: `M${wave}`, fill: "none" }),
    svg("path", { class: "arrow", d: `M${edge} ${y}H${to < x ? to + 6 : to - 6}`, "marker-end": "url(#tip)" }),
  );
}

function figure(model, look) {
  const z = shapes(model, look);
  const height = (model.norm === "pre" ? 9 : 6) * (TALL + GAP) + (model.norm === "pre" ? 530 : 452);
  const bottom = height - 12;
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${height}`, class: "figure", role: "group", "aria-label": t("map.title") },
    svg(
      "defs",
      {},
      svg(
        "marker",
        { id: "tip", viewBox: "0 0 8 8", refX: 4, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
        svg("path", { class: "tip", d: "M0 0L8 4L0 8z" }),
      ),
    ),
  );
  const encoder = column(picture, "encoder", ENCODER, bottom, z, model);
  const decoder = column(picture, "decoder", DECODER, bottom, z, model);
  const linear = decoder.top - GAP - 8 - TALL;
  const softmax = linear - GAP - TALL;
  const cross = decoder.cross + TALL / 2;
  picture.append(
    ...arrow(DECODER, decoder.top, linear + TALL, `${z.T} × ${z.D}`, -1),
    blockNode("linear", DECODER, linear, z, model, "decoder"),
    ...arrow(DECODER, linear, softmax + TALL, `${z.T} × ${whole(z.V)}`, -1),
    blockNode("softmax", DECODER, softmax, z, model, "decoder"),
    ...arrow(DECODER, softmax, softmax - 40, `${z.T} × ${whole(z.V)}`, -1),
    endNode("result", DECODER, softmax - 72, "decoder"),
  );
  picture.setAttribute("viewBox", `0 ${softmax - 76} ${WIDTH} ${height - softmax + 76}`);
  const over = encoder.top - 40;
  const side = (ENCODER + DECODER) / 2 + 2;
  picture.append(
    svg("path", {
      class: "arrow",
      d: `M${ENCODER} ${encoder.top}V${over}H${side}V${cross}H${DECODER - WIDE / 2 - 5}`,
      "marker-end": "url(#tip)",
    }),
    svg("text", { class: "shape", x: ENCODER + 10, y: over - 8 }, `${t("map.memory")} ${z.S} × ${z.D}`),
    svg("text", { class: "shape", x: side + 7, y: cross - 7 }, "K, V"),
  );
  return picture;
}

/** This sentence's numbers for a block: what stands in for the letters of its formula. */
function facts(kind, where, sublayer, model, look) {
  const z = shapes(model, look);
  const residuals = look.residuals[where];
  const site = { self: "encoder", masked: "decoder", cross: "cross" }[kind];
  const each = SUBLAYERS[where].length;
  const after = residuals.filter((_, n) => n && (n - 1) % each === sublayer); // the first is the embedding
  const text = where === "encoder" ? look.source : look.target;
  const [first] = look.predictions;
  const [best] = look.search.hypotheses;
  return {
    ...z,
    n: where === "encoder" ? z.S : z.T,
    root: number(Math.sqrt(z.D), 2),
    root_k: number(Math.sqrt(z.K), 2),
    layers: model[`${where}_layers`],
    entropies: site && look.attention[site].map(one => number(mean(one.entropy.flat()), 2)).join(", "),
    most: number(Math.log(kind === "masked" ? z.T : z.S), 2),
    pieces: text.pieces.slice(0, 4).join(" "),
    ids: text.ids.slice(0, 4).join(", "),
    part: t(`part.${SUBLAYERS[where][sublayer].replace("masked", "self")}`),
    norm_first: number(mean(residuals[0]), 2),
    norms: after.map(row => number(mean(row), 2)).join(", "),
    active: look.activations[where].map(one => percent(mean(one))).join(", "),
    first: first.piece.replaceAll("▁", ""),
    prob: percent(Math.exp(first.log_prob)),
    log_prob: number(look.log_prob, 2),
    W: state.beam,
    ends: look.search.hypotheses.length,
    best: best.text,
    best_log: number(best.log_prob, 2),
    best_score: number(best.score, 2),
  };
}

const FORMULAS = {
  inputs: "text → (id₁, …, id_S)",
  outputs: "(<s>, y₁, …, y_T−1) → (y₁, …, </s>)",
  embedding: "x = E[id] · √d_model",
  positions: "PE(pos, 2i) = sin(pos / 10000^(2i/d));  PE(pos, 2i+1) = cos(…)",
  self: "softmax(Q Kᵀ / √d_k) V",
  masked: "softmax(Q Kᵀ / √d_k + mask) V",
  cross: "softmax(Q Kᵀ / √d_k) V;  K, V ← encoder",
  norm: "LayerNorm(x) = γ (x − μ) / √(σ² + ε) + β",
  softmax: "P(y) = exp(z_y) / Σ exp(z)",
  result: "score(Y) = log P(Y) / ((5 + |Y|) / 6)^α",
};

function formulaOf(kind, model) {
  if (kind === "ffn") return t(`residual.ffn.${model.activation}`);
  if (kind === "add") return model.norm === "pre" ? "x + Sublayer(LayerNorm(x))" : "LayerNorm(x + Sublayer(x))";
  if (kind === "linear") return `z = x ${model.shared_embeddings === "none" ? "W" : "E"}ᵀ${model.output_bias ? " + b" : ""}`;
  if (kind === "positions" && model.positions === "learned") return "x = E[id] · √d_model + P[pos]";
  return FORMULAS[kind];
}

/** The name of the words about a block: not every model is as the paper's. */
function reasonOf(kind, where, model) {
  if (kind === "add") return model.norm === "pre" ? "map.add.why" : "map.add-norm.why";
  if (kind === "linear" && model.shared_embeddings === "none") return "map.linear.own";
  if (kind === "positions") return `map.positions.${where}.${model.positions}`;
  return `map.${kind}.why`;
}

function panel(model, look, described) {
  const [asked, stack, nth] = (state.block || FIRST).split(".");
  const kind = Object.hasOwn(VIEW_OF, asked) ? asked : "cross";
  const where = stack === "encoder" ? "encoder" : "decoder";
  const sublayer = /^\d+$/.test(nth) ? Math.min(Number(nth), SUBLAYERS[where].length - 1) : 0;
  const name = kind === "add" && model.norm !== "pre" ? t("map.add-norm") : t(`map.${kind}`);
  const view = VIEW_OF[kind];
  const site = { self: "encoder", masked: "decoder", cross: "cross" }[kind];
  return html(
    "section",
    { class: "card panel", "data-block": state.block || FIRST },
    html("h3", {}, name),
    html("p", { class: "formula" }, formulaOf(kind, model)),
    html("p", {}, t(reasonOf(kind, where, model), facts(kind, where, sublayer, model, look))),
    html(
      "button",
      { "data-key": "open", onclick: () => set({ view, stack: where, ...(site && { site, layer: "" }) }) },
      t("map.open", { view: t(`${view}.title`) }),
    ),
    html(
      "p",
      { class: "soft" },
      t("map.model", {
        parameters: whole(Object.values(described.parameters).reduce((sum, one) => sum + one, 0)),
        norm: t(`model.${model.norm}`),
        positions: t(`model.${model.positions}`),
        activation: t(`model.${model.activation}`),
      }),
    ),
  );
}

let opened = state.block;

export function draw(body, { look, model }) {
  body.append(
    html(
      "div",
      { class: "with-panel" },
      html("div", { class: "card scroll", "data-scroll": "map" }, figure(model.model, look)),
      panel(model.model, look, model),
    ),
  );
  if (opened !== state.block)
    requestAnimationFrame(() => body.querySelector(".panel")?.scrollIntoView({ block: "nearest" })); // it may be far above
  opened = state.block;
  return { ...model, shapes: shapes(model.model, look) };
}
