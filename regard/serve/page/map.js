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

/** A layer's blocks from the bottom up: each sub-layer in its residual connection, normalised after or before. */
function layerBlocks(sublayers, isPre) {
  return sublayers.flatMap(kind =>
    isPre
      ? [{ kind: "norm", opens: true }, { kind }, { kind: "add", closes: true }]
      : [
          { kind, opens: true },
          { kind: "add", closes: true },
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

function blockNode(kind, x, y, z, model, where) {
  const name = kind === "add" ? t(model.norm === "pre" ? "map.add" : "map.add-norm") : t(`map.${kind}`);
  const inside =
    kind === "ffn"
      ? `${z.D} → ${z.F} → ${z.D}`
      : kind === "embedding"
        ? `${whole(where === "encoder" ? model.src_vocab_size : z.V)} × ${z.D}`
        : kind === "linear"
          ? `${z.D} × ${whole(z.V)}`
          : detail(kind, z);
  const open = () => set({ block: `${kind}.${where}` });
  return svg(
    "g",
    {
      class: `block ${kind}${state.block === `${kind}.${where}` ? " chosen" : ""}`,
      tabindex: 0,
      role: "button",
      "data-key": `block-${kind}-${where}-${Math.round(y)}`,
      "data-block": `${kind}.${where}`,
      "aria-label": `${name}. ${inside}`,
      onclick: open,
      onkeydown: event => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          open();
        }
      },
    },
    svg("rect", { x: x - WIDE / 2, y, width: WIDE, height: TALL, rx: 8 }),
    svg("text", { x, y: y + (inside ? 18 : 26), "text-anchor": "middle", class: "name" }, name),
    inside && svg("text", { x, y: y + 34, "text-anchor": "middle", class: "inside" }, inside),
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
  const isEncoder = where === "encoder";
  const n = isEncoder ? z.S : z.T;
  const shape = `${n} × ${z.D}`;
  const outward = isEncoder ? -1 : 1;
  const blocks = layerBlocks(isEncoder ? ["self", "ffn"] : ["masked", "cross", "ffn"], model.norm === "pre");
  const tokens = isEncoder ? "inputs" : "outputs";
  picture.append(
    svg(
      "g",
      {
        class: `block plain${state.block === `${tokens}.${where}` ? " chosen" : ""}`,
        tabindex: 0,
        role: "button",
        "data-key": `block-${tokens}`,
        "data-block": `${tokens}.${where}`,
        "aria-label": t(`map.${tokens}`),
        onclick: () => set({ block: `${tokens}.${where}` }),
        onkeydown: event => {
          if (event.key === "Enter") set({ block: `${tokens}.${where}` });
        },
      },
      svg("rect", { x: x - WIDE / 2, y: bottom - 24, width: WIDE, height: 32, rx: 8 }),
      svg("text", { x, y: bottom - 4, "text-anchor": "middle", class: "name" }, t(`map.${tokens}`)),
    ),
  );
  let y = bottom - 24 - GAP - TALL;
  const inward = -outward; // where no bypass runs
  picture.append(...arrow(x, bottom - 24, y + TALL, String(n), inward), blockNode("embedding", x, y, z, model, where));
  const plus = y - GAP - 8;
  picture.append(
    ...arrow(x, y, plus + 9, shape, inward),
    svg("circle", { class: "plus", cx: x, cy: plus, r: 10 }),
    svg("text", { x, y: plus + 5, "text-anchor": "middle", class: "name" }, "+"),
  );
  picture.append(positionsNode(x + outward * 118, plus, where, x + outward * 10));
  const groupBottom = plus - 10 - GAP + 8;
  y = plus - 10;
  const found = {};
  let from = y;
  let opened = y;
  blocks.forEach((block, index) => {
    const top = from - GAP - (index === 0 ? 10 : 0) - TALL;
    if (block.opens) opened = top + TALL + 14;
    picture.append(...arrow(x, from, top + TALL, shape, inward));
    if (block.closes)
      picture.append(
        svg("path", {
          class: "arrow bypass",
          d: `M${x} ${opened}H${x + outward * (WIDE / 2 + 16)}V${top + TALL / 2}H${x + outward * (WIDE / 2 + 5)}`,
          "marker-end": "url(#tip)",
        }),
      );
    picture.append(blockNode(block.kind, x, top, z, model, where));
    found[block.kind] ??= top;
    from = top;
  });
  picture.prepend(
    svg("rect", {
      class: "stack",
      x: x - WIDE / 2 - 30,
      y: from - 14,
      width: WIDE + 60,
      height: groupBottom - from + 14,
      rx: 14,
    }),
  );
  picture.append(
    svg(
      "text",
      {
        class: "times",
        x: x + outward * (WIDE / 2 + 40),
        y: (from + groupBottom) / 2,
        "text-anchor": isEncoder ? "end" : "start",
      },
      `${model[`${where}_layers`]} ×`,
    ),
  );
  if (model.norm === "pre") {
    const top = from - GAP - 8 - TALL;
    picture.append(...arrow(x, from, top + TALL, shape, inward), blockNode("norm", x, top, z, model, where));
    from = top;
  }
  return { top: from, ...found };
}

function positionsNode(x, y, where, to) {
  const open = () => set({ block: `positions.${where}` });
  const wave = Array.from(
    { length: 25 },
    (_, n) => `${x - 12 + n} ${(y + 7 * Math.sin((n / 24) * 2 * Math.PI)).toFixed(1)}`,
  ).join("L");
  const edge = x < to ? x + 17 : x - 17;
  return svg(
    "g",
    {
      class: `block wave${state.block === `positions.${where}` ? " chosen" : ""}`,
      tabindex: 0,
      role: "button",
      "data-key": `block-positions-${where}`,
      "data-block": `positions.${where}`,
      "aria-label": t("map.positions"),
      onclick: open,
      onkeydown: event => {
        if (event.key === "Enter") open();
      },
    },
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
    svg("text", { x: DECODER, y: softmax - 48, "text-anchor": "middle", class: "name" }, t("map.probabilities")),
  );
  picture.setAttribute("viewBox", `0 ${softmax - 72} ${WIDTH} ${height - softmax + 72}`);
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
function facts(kind, where, model, look, described) {
  const z = shapes(model, look);
  const residuals = look.residuals[where];
  const layers = model[`${where}_layers`];
  const site = { self: "encoder", masked: "decoder", cross: "cross" }[kind];
  const entropies = site && look.attention[site].map(layer => number(mean(layer.entropy.flat()), 2)).join(", ");
  const last = look.predictions.at(0);
  return {
    ...z,
    n: where === "encoder" ? z.S : z.T,
    root: number(Math.sqrt(z.D), 2),
    root_k: number(Math.sqrt(z.K), 2),
    layers,
    entropies,
    most: number(Math.log(kind === "masked" ? z.T : z.S), 2),
    pieces: (where === "encoder" ? look.source : look.target).pieces.slice(0, 4).join(" "),
    ids: (where === "encoder" ? look.source : look.target).ids.slice(0, 4).join(", "),
    norm_first: number(mean(residuals[0]), 2),
    norm_last: number(mean(residuals.at(-1)), 2),
    active: look.activations[where].map(layer => percent(mean(layer))).join(", "),
    parameters: whole(Object.values(described.parameters).reduce((sum, one) => sum + one, 0)),
    first: last.piece.replaceAll("▁", ""),
    prob: percent(Math.exp(last.log_prob)),
    log_prob: number(look.log_prob, 2),
  };
}

const FORMULAS = {
  inputs: "text → (id₁, …, id_S)",
  outputs: "(<s>, y₁, …, y_T−1) → (y₁, …, </s>)",
  embedding: "x = E[id] · √d_model",
  positions: "PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos(…)",
  self: "softmax(Q Kᵀ / √d_k) V",
  masked: "softmax(Q Kᵀ / √d_k + mask) V",
  cross: "softmax(Q Kᵀ / √d_k) V,  K, V ← encoder",
  norm: "LayerNorm(x) = γ (x − μ) / √(σ² + ε) + β",
  linear: "z = x Eᵀ",
  softmax: "P(y) = exp(z_y) / Σ exp(z)",
};

function panel(model, look, described) {
  const [kind, where] = (state.block || "cross.decoder").split(".");
  const known = VIEW_OF[kind] ? kind : "cross";
  const stack = where === "encoder" ? "encoder" : "decoder";
  const isPre = model.norm === "pre";
  const formula =
    known === "ffn"
      ? t(`residual.ffn.${model.activation}`)
      : known === "add"
        ? isPre
          ? "x + Sublayer(LayerNorm(x))"
          : "LayerNorm(x + Sublayer(x))"
        : known === "positions" && model.positions === "learned"
          ? "x = E[id] · √d_model + P[pos]"
          : FORMULAS[known];
  const name = known === "add" ? t(isPre ? "map.add" : "map.add-norm") : t(`map.${known}`);
  const view = VIEW_OF[known];
  const site = { self: "encoder", masked: "decoder", cross: "cross" }[known];
  return html(
    "section",
    { class: "card panel", "data-block": `${known}.${stack}` },
    html("h3", {}, name),
    html("p", { class: "formula" }, formula),
    html(
      "p",
      {},
      t(
        known === "positions" && model.positions === "learned" ? "map.positions.learned" : `map.${known}.why`,
        facts(known, stack, model, look, described),
      ),
    ),
    html(
      "button",
      { "data-key": "open", onclick: () => set({ view, stack, ...(site && { site, layer: "" }) }) },
      t("map.open", { view: t(`${view}.title`) }),
    ),
    html(
      "p",
      { class: "soft" },
      t("map.model", {
        parameters: whole(Object.values(described.parameters).reduce((sum, one) => sum + one, 0)),
        norm: model.norm,
        positions: model.positions,
        activation: model.activation,
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
