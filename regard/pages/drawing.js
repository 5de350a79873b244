// Elements, colours, heat maps and curves, for every page; nothing here depends on a model. The studio imports this module;
// regard/pages/template.py puts its text into pages that are one file.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter(child => child !== undefined && child !== null && child !== false));
  return node;
}

/** `html("p", { class: "soft", onclick: f }, "text", child)` */
export const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Format a number with few digits, and equally many in a column; whole numbers have no decimals. */
export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value)) return String(value).replace("-", "−");
  if (size < 10 ** -digits) return value.toExponential(1).replaceAll("-", "−");
  return value.toFixed(size >= 100 ? 1 : digits).replace("-", "−");
}
/** Format a percentage, with a no-break space so that the sign never stands alone on a line. */
export function percent(value) {
  if (value === 0 || value >= 0.9995) return `${Math.round(100 * value)}\u00a0%`;
  return value < 0.0005
    ? "<\u00a00.1\u00a0%"
    : `${(100 * value).toFixed(value > 0.995 || value < 0.0995 ? 1 : 0)}\u00a0%`;
}
export const whole = value => value.toLocaleString("en");

/** Return a subword for display: without the space marker, or with a visible one. */
export const bare = piece => piece.replaceAll("▁", "");
export const shown = piece => piece.replaceAll("▁", "␣");

/** Return the text of pieces: a piece may begin with the space marker, and unknown characters are spelled in bytes. */
export function textOf(pieces) {
  const bytes = pieces.flatMap(piece => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(piece);
    return byte ? [parseInt(byte[1], 16)] : [...new TextEncoder().encode(piece)];
  });
  return new TextDecoder().decode(Uint8Array.from(bytes)).replaceAll("▁", " ").trim();
}

function colour(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
}
const mixed = (from, to, share) => from.map((part, n) => Math.round(part + (to[n] - part) * share));

/** Return a colour scale from the background to the accent, with small values lifted so that they differ visibly from 0; a
 * diverging scale has the opposite colour below 0. */
function scale({ low = 0, high = 1, diverging = false } = {}) {
  const ground = colour("--ground");
  const accent = colour("--accent");
  const opposite = colour("--opposite");
  return value => {
    if (diverging) return mixed(ground, value < 0 ? opposite : accent, Math.min(1, Math.abs(value) / high));
    return mixed(ground, accent, Math.min(1, Math.max(0, (value - low) / (high - low || 1))) ** 0.6);
  };
}

/** Draw a heat map with one pixel a cell; the style sheet enlarges it. */
export function heat(values, options = {}) {
  const height = values.length;
  const width = values[0].length;
  const paint = scale(options);
  const canvas = html("canvas", { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  let at = 0;
  for (const row of values) {
    for (const value of row) {
      const [red, green, blue] = paint(value);
      image.data[at++] = red;
      image.data[at++] = green;
      image.data[at++] = blue;
      image.data[at++] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

const textWidth = text => [...text].reduce((sum, letter) => sum + (letter.codePointAt(0) > 0x2e80 ? 12.5 : 7.6), 0);
const short = (text, most = 14) => ([...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text);

/** Draw a heat map with its names shortened to fit, and return it with the place of its first cell. */
function named(values, rows, columns, side, attributes, colours) {
  const width = side * values[0].length;
  const height = side * values.length;
  const names = side >= 10;
  const left = names ? 10 + Math.max(...rows.map(name => textWidth(short(name, 22)))) : 2;
  const above = names ? 10 + Math.max(...columns.map(name => textWidth(short(name)))) * 0.78 : 2;
  const right = names
    ? Math.max(8, ...columns.map((name, n) => textWidth(short(name)) * 0.62 + 6 - width + side * (n + 0.5)))
    : 2;
  const room = { width: left + width + right, height: above + height + 4 };
  const place = { x: left, y: above, width, height };
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${room.width} ${room.height}`, ...room, ...attributes },
    svg("image", { href: heat(values, colours).toDataURL(), ...place, preserveAspectRatio: "none" }),
    svg("rect", { class: "frame", ...place }),
  );
  if (names) {
    rows.forEach((name, n) =>
      picture.append(svg("text", { x: left - 6, y: above + side * (n + 0.5) + 4, "text-anchor": "end" }, short(name, 22))),
    );
    columns.forEach((name, n) =>
      picture.append(
        svg("text", { transform: `translate(${left + side * (n + 0.5) + 3} ${above - 6}) rotate(-52)` }, short(name)),
      ),
    );
  }
  return { picture, left, above };
}

/** Draw a heat map to read with the pointer or the arrow keys. `tell(row, column)` returns the sentence about a cell;
 * `pick(row, column)` is called when a cell is chosen. */
export function matrix({ values, rows, columns, label, tell, pick, cell, fits = false, ...colours }) {
  const height = values.length;
  const width = values[0].length;
  const side = cell ?? Math.max(6, Math.min(26, 620 / Math.max(width, height)));
  const attributes = { class: fits ? "matrix fits" : "matrix", role: "img", tabindex: 0, "aria-label": label };
  const { picture, left, above } = named(values, rows, columns, side, attributes, colours);
  const note = html("figcaption", { class: "reading", "aria-live": "polite" }, " ");
  let cursor;
  let at = [0, 0];
  const show = (row, column) => {
    at = [Math.max(0, Math.min(height - 1, row)), Math.max(0, Math.min(width - 1, column))];
    cursor?.remove();
    const [x, y] = [left + side * at[1], above + side * at[0]];
    cursor = picture.appendChild(svg("rect", { class: "cursor", x, y, width: side, height: side }));
    note.textContent = tell(...at, values[at[0]][at[1]]);
  };
  const cellAt = event => {
    const area = picture.getBoundingClientRect();
    const zoom = picture.viewBox.baseVal.width / area.width;
    return [
      Math.floor(((event.clientY - area.top) * zoom - above) / side),
      Math.floor(((event.clientX - area.left) * zoom - left) / side),
    ];
  };
  picture.addEventListener("pointermove", event => {
    const [row, column] = cellAt(event);
    if (row >= 0 && row < height && column >= 0 && column < width) show(row, column);
  });
  if (pick)
    picture.addEventListener("click", event => {
      const [row, column] = cellAt(event);
      if (row >= 0 && row < height) pick(row, column);
    });
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  picture.addEventListener("keydown", event => {
    if (moves[event.key]) {
      event.preventDefault();
      show(at[0] + moves[event.key][0], at[1] + moves[event.key][1]);
    }
    if (pick && event.key === "Enter") pick(...at);
  });
  return html("figure", { class: "matrix" }, html("div", { class: "scroll" }, picture), note);
}

/** Return round numbers between two others, with as many digits as their step has. */
export function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(n => n * power).find(n => n >= raw * (1 - 1e-9));
  const found = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step)
    found.push(+tick.toPrecision(12));
  let digits = 0;
  while (found.some(tick => Math.abs(+tick.toFixed(digits) - tick) > step / 1e6)) digits++;
  const places = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return found.map(value => ({ value, text: value.toLocaleString("en", places).replace("-", "−") }));
}

/** Draw a line across a chart at each of these ticks, with its number on the left. */
export const levels = (found, y, left, right) =>
  found.flatMap(({ value, text }) => [
    svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
    svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, text),
  ]);

const STROKES = ["--accent", "--opposite", "--third", "--soft", "--fifth", "--sixth"].map(name => `var(${name})`);

/** Draw a line of the legend for each curve, with its value at `where`, or its last one. */
function told(drawn, axis, where) {
  return drawn.map((curve, n) => {
    const near =
      where === undefined
        ? curve.points.at(-1)
        : curve.points.reduce((best, point) => (Math.abs(point[0] - where) < Math.abs(best[0] - where) ? point : best));
    const stroke = { stroke: STROKES[n % STROKES.length], "stroke-width": 3 };
    return html(
      "span",
      {},
      svg("svg", { width: 16, height: 8, class: "key" }, svg("line", { x1: 0, x2: 16, y1: 4, y2: 4, ...stroke })),
      `${curve.name} `,
      html("b", {}, number(near[1], Math.abs(near[1]) < 0.01 ? 6 : 4)),
      n === 0 ? html("span", { class: "soft" }, ` (${axis} ${number(near[0])})`) : "",
    );
  });
}

/** Draw curves over one axis: `{ name, points: [[x, y], …] }`. The legend shows values at the pointer, or else at `at`. */
export function lines({ curves, label, axis = "", start, bottom, top, dots = false, at }) {
  const [width, height, right, above, below] = [520, 220, 12, 10, 36];
  const drawn = curves.filter(curve => curve.points.length);
  const xs = drawn.flatMap(curve => curve.points.map(point => point[0]));
  const ys = drawn.flatMap(curve => curve.points.map(point => point[1]));
  const first = start ?? Math.min(...xs);
  const last = Math.max(...xs);
  const low = bottom ?? Math.min(...ys);
  const high = top ?? Math.max(...ys);
  const heights = ticks(low, high, 4);
  const left = Math.max(50, 12 + 8.5 * Math.max(...heights.map(tick => tick.text.length)));
  const x = value => left + ((width - left - right) * (value - first)) / (last - first || 1);
  const y = value =>
    height - below - ((height - above - below) * (Math.min(high, Math.max(low, value)) - low)) / (high - low || 1);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "lines", role: "img", "aria-label": label });
  picture.append(...levels(heights, y, left, width - right));
  for (const { value, text } of ticks(first, last))
    picture.append(
      svg("text", { x: x(value), y: height - 19, "text-anchor": x(value) > width - 30 ? "end" : "middle" }, text),
    );
  picture.append(svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, axis));
  drawn.forEach((curve, n) => {
    const stroke = STROKES[n % STROKES.length];
    const path = curve.points.map(point => `${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`);
    picture.append(
      svg("path", { d: "M" + path.join("L"), fill: "none", stroke, "stroke-width": 2, "stroke-linejoin": "round" }),
    );
    if (dots || curve.points.length < 8)
      curve.points.forEach(point => picture.append(svg("circle", { cx: x(point[0]), cy: y(point[1]), r: 3, fill: stroke })));
  });
  const legend = html("figcaption", { class: "legend" });
  let cursor;
  const show = where => {
    legend.replaceChildren(...told(drawn, axis, where));
    cursor?.remove();
    if (where === undefined) return;
    const across = x(Math.min(last, Math.max(first, where)));
    cursor = picture.appendChild(svg("line", { class: "cursor", x1: across, x2: across, y1: above, y2: height - below }));
  };
  show(at);
  picture.addEventListener("pointermove", event => {
    const area = picture.getBoundingClientRect();
    const across = ((event.clientX - area.left) / area.width) * width;
    show(first + ((last - first) * (across - left)) / (width - left - right));
  });
  picture.addEventListener("pointerleave", () => show(at));
  return html("figure", { class: "chart" }, picture, legend);
}

/** Draw rows of name, bar and number; a row with `pick` is a button. Bars of negative values go left from a middle line. */
export function bars(rows, { most, label } = {}) {
  const reach = most ?? Math.max(1e-9, ...rows.map(row => Math.abs(row.value)));
  const signed = rows.some(row => row.value < 0);
  return html(
    "div",
    { class: `bars${signed ? " signed" : ""}`, role: "list", "aria-label": label },
    rows.map(row => {
      const share = Math.min(1, Math.abs(row.value) / reach) * (signed ? 50 : 100);
      const bar = html("i", { class: row.value < 0 ? "below" : "" });
      bar.style.width = `${share}%`;
      if (signed) bar.style.marginLeft = row.value < 0 ? `${50 - share}%` : "50%";
      const parts = [
        html("span", { class: "name", title: row.name }, row.name),
        html("span", { class: "track" }, bar),
        html("span", { class: "value" }, row.text ?? number(row.value)),
      ];
      const kind = `bar${row.chosen ? " chosen" : ""}${row.faded ? " faded" : ""}`;
      const line = row.pick
        ? html("button", { class: kind, "data-key": row.key, onclick: row.pick, title: row.title }, parts)
        : html("div", { class: kind }, parts);
      return html("div", { role: "listitem" }, line);
    }),
  );
}

/** Draw a switch with its label. */
export function onOff(isOn, attributes, ...words) {
  return html(
    "label",
    { class: "switch" },
    html("input", { type: "checkbox", role: "switch", checked: isOn, ...attributes }),
    words,
  );
}

/** Draw a colour scale with its two ends. */
export function legend(low, high, options = {}) {
  const values = Array.from({ length: 60 }, (_, n) => (options.diverging ? -1 + (2 * n) / 59 : n / 59));
  const strip = heat([values], { ...options, low: 0, high: 1 });
  return html("span", { class: "scale" }, low, strip, high);
}

export function softmax(scores) {
  const most = Math.max(...scores);
  const grown = scores.map(score => Math.exp(score - most));
  const sum = grown.reduce((total, one) => total + one, 0);
  return grown.map(one => one / sum);
}
export const entropy = weights => weights.reduce((sum, one) => (one > 0 ? sum - one * Math.log(one) : sum), 0);
export const mean = values => values.reduce((sum, one) => sum + one, 0) / values.length;
