// Exports a view as one SVG file, with its drawings copied and its text at the same coordinates.

const COPIED = [
  "stroke-width",
  "stroke-dasharray",
  "stroke-linejoin",
  "font-size",
  "font-family",
  "font-weight",
  "text-anchor",
  "opacity",
  "image-rendering",
];
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 16;
const MOST_TURNS = 8;
const SIDES = ["Top", "Right", "Bottom", "Left"];
const pixel = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
const context = pixel.getContext("2d", { willReadFrequently: true });

function make(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Return `fill` or `stroke` in a form that every program reads. Browsers give mixed colours as color(srgb …). */
function paint(name, colour) {
  if (colour === "none") return { [name]: "none" };
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = context.getImageData(0, 0, 1, 1).data;
  if (!alpha) return { [name]: "none" };
  const solid = { [name]: `rgb(${red}, ${green}, ${blue})` };
  return alpha === 255 ? solid : { ...solid, [`${name}-opacity`]: (alpha / 255).toFixed(3) };
}

/** Copy a drawing with its computed styles, because the file has no style sheet. */
function styled(original) {
  const copy = original.cloneNode(true);
  const before = [original, ...original.querySelectorAll("*")];
  const after = [copy, ...copy.querySelectorAll("*")];
  before.forEach((node, n) => {
    const style = getComputedStyle(node);
    const colours = { ...paint("fill", style.fill), ...paint("stroke", style.stroke) };
    for (const [name, value] of Object.entries(colours)) after[n].setAttribute(name, value);
    for (const name of COPIED) after[n].setAttribute(name, style.getPropertyValue(name));
    after[n].removeAttribute("class");
  });
  copy.setAttribute("overflow", getComputedStyle(original).overflow);
  return copy;
}

/** Draw a box's background and its border, which may be on some sides only. */
function backdrop(into, style, { x, y, width, height }) {
  const lines = SIDES.map(side => ({
    wide: parseFloat(style[`border${side}Width`]),
    ...paint("stroke", style[`border${side}Color`]),
  })).map(line => (line.wide ? line : { wide: 0, stroke: "none" }));
  const isEven = lines.every(line => line.wide === lines[0].wide && line.stroke === lines[0].stroke);
  const { wide, ...stroke } = isEven ? lines[0] : { wide: 0, stroke: "none" };
  const ground = paint("fill", style.backgroundColor);
  if (ground.fill !== "none" || stroke.stroke !== "none")
    into.append(
      make("rect", {
        x: x + wide / 2,
        y: y + wide / 2,
        width: width - wide,
        height: height - wide,
        rx: Math.min(parseFloat(style.borderTopLeftRadius) || 0, width / 2, height / 2),
        ...ground,
        ...stroke,
        "stroke-width": wide,
        "stroke-dasharray": style.borderTopStyle === "dashed" ? "2 2" : "none",
      }),
    );
  if (isEven) return;
  const ends = [
    [x, y, x + width, y],
    [x + width, y, x + width, y + height],
    [x, y + height, x + width, y + height],
    [x, y, x, y + height],
  ];
  lines.forEach(({ wide: thick, ...colour }, n) => {
    const [x1, y1, x2, y2] = ends[n];
    if (colour.stroke !== "none") into.append(make("line", { x1, y1, x2, y2, ...colour, "stroke-width": thick }));
  });
}

function write(into, style, text, x, middle) {
  const size = parseFloat(style.fontSize);
  into.append(
    make(
      "text",
      {
        x,
        y: middle + size * 0.35,
        "font-size": size,
        "font-family": style.fontFamily,
        "font-weight": style.fontWeight,
        ...paint("fill", style.color),
      },
      text,
    ),
  );
}

/** Yield a text's words with their areas; a word that a line break divides, as is usual in Chinese, in parts. */
function* words(node) {
  const range = document.createRange();
  const area = (from, to) => {
    range.setStart(node, from);
    range.setEnd(node, to);
    return range.getBoundingClientRect();
  };
  for (const { 0: word, index } of node.textContent.matchAll(/\S+/g)) {
    let part = { text: "", from: index };
    for (const letter of word) {
      const at = part.from + part.text.length;
      const { top, height } = area(at, at + letter.length);
      if (part.text && Math.abs(top - part.top) > height / 2) {
        yield { text: part.text, area: area(part.from, at) };
        part = { text: "", from: at };
      }
      part = { ...part, text: part.text + letter, top };
    }
    yield { text: part.text, area: area(part.from, part.from + part.text.length) };
  }
}

/** Draw the value of a form control, which has no elements inside. */
function control(into, node, style, place) {
  const { x, y, width, height } = place;
  const middle = y + height / 2;
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  if (node.type === "range") {
    const at = x + 8 + ((width - 16) * (node.value - node.min)) / (node.max - node.min || 1);
    into.append(
      make("line", { x1: x, x2: x + width, y1: middle, y2: middle, stroke: "#8a8a85", "stroke-width": 3 }),
      make("line", { x1: x, x2: at, y1: middle, y2: middle, stroke: accent, "stroke-width": 5 }),
      make("circle", { cx: at, cy: middle, r: 8, fill: accent }),
    );
  } else if (node.type === "checkbox") {
    const mark = `M${x + width * 0.22} ${middle}l${width * 0.2} ${height * 0.2}l${width * 0.36} ${-height * 0.42}`;
    into.append(
      make("rect", { ...place, rx: 3, fill: node.checked ? accent : "none", stroke: accent }),
      make("path", { d: node.checked ? mark : "M0 0", fill: "none", stroke: "#ffffff", "stroke-width": 2 }),
    );
  } else {
    const text = node.matches("select") ? (node.selectedOptions[0]?.textContent ?? "") : node.value;
    const inside = clipped(into, place);
    backdrop(inside, style, place);
    const hint = inside.appendChild(make("g", { opacity: text ? 1 : 0.6 }));
    write(hint, style, text || node.placeholder || "", x + parseFloat(style.paddingLeft) + 1, middle);
  }
}

/** Return a nested SVG that clips its content and keeps the surrounding coordinates. */
function clipped(into, { x, y, width, height }) {
  return into.appendChild(make("svg", { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` }));
}

function draw(into, node, origin) {
  const placed = area => ({ x: area.left - origin.left, y: area.top - origin.top, width: area.width, height: area.height });
  if (node.nodeType === Node.TEXT_NODE) {
    const style = getComputedStyle(node.parentElement);
    for (const { text, area } of words(node))
      if (area.width) write(into, style, text, placed(area).x, placed(area).y + area.height / 2);
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  const place = placed(node.getBoundingClientRect());
  if (!place.width || !place.height) return;
  const style = getComputedStyle(node);
  if (node instanceof SVGSVGElement) {
    const copy = styled(node);
    if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${place.width} ${place.height}`);
    for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
    into.append(copy);
    return;
  }
  const group = style.opacity === "1" ? into : into.appendChild(make("g", { opacity: style.opacity }));
  if (node instanceof HTMLCanvasElement) {
    const pixels = { href: node.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" };
    group.append(make("image", { ...place, ...pixels }));
  } else if (node.matches("input, select, textarea")) {
    control(group, node, style, place);
  } else {
    backdrop(group, style, place);
    const isCut = style.overflowX !== "visible" && node.scrollWidth > node.clientWidth + 1;
    const inside = isCut ? clipped(group, place) : group;
    node.childNodes.forEach(child => draw(inside, child, origin));
  }
}

/** Widen the view to its widest part, because a picture cannot scroll. Return how far each part was scrolled. */
function unfold(box) {
  const parts = [...box.querySelectorAll(".scroll, .formula")].map(node => ({ node, left: node.scrollLeft }));
  const hidden = () => Math.max(0, ...parts.map(({ node }) => node.scrollWidth - node.clientWidth));
  for (let turn = 0; turn < MOST_TURNS && hidden(); turn++) box.style.width = `${box.offsetWidth + hidden()}px`;
  return parts;
}

export function pictureOf(box) {
  const parts = unfold(box);
  const origin = box.getBoundingClientRect();
  const width = Math.ceil(origin.width) + 2 * MARGIN;
  const height = Math.ceil(origin.height) + 2 * MARGIN;
  const root = make("svg", { xmlns: SVG, viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}`, width, height });
  const ground = paint("fill", getComputedStyle(document.body).backgroundColor);
  root.append(make("rect", { x: -MARGIN, y: -MARGIN, width, height, ...ground }));
  box.childNodes.forEach(child => draw(root, child, origin));
  box.style.width = "";
  for (const { node, left } of parts) node.scrollLeft = left;
  return new XMLSerializer().serializeToString(root);
}

export function save(name, text, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
