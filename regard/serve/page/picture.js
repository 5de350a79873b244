// A view as one SVG file: its drawings as they are, its words where they stand.

const COPIED = [
  "fill",
  "stroke",
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
const isClear = colour => colour === "transparent" || /, 0\)$/.test(colour);

function make(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** What the style sheet says is written out: a file has none. */
function styled(original) {
  const copy = original.cloneNode(true);
  const before = [original, ...original.querySelectorAll("*")];
  const after = [copy, ...copy.querySelectorAll("*")];
  before.forEach((node, n) => {
    const style = getComputedStyle(node);
    for (const name of COPIED) after[n].setAttribute(name, style.getPropertyValue(name));
    after[n].removeAttribute("class");
  });
  return copy;
}

function backdrop(into, node, area, origin) {
  const style = getComputedStyle(node);
  const line = parseFloat(style.borderTopWidth);
  if (isClear(style.backgroundColor) && !line) return;
  into.append(
    make("rect", {
      x: area.left - origin.left,
      y: area.top - origin.top,
      width: area.width,
      height: area.height,
      rx: parseFloat(style.borderTopLeftRadius) || 0,
      fill: isClear(style.backgroundColor) ? "none" : style.backgroundColor,
      stroke: line ? style.borderTopColor : "none",
      "stroke-width": line,
    }),
  );
}

/** Word by word, because lines break where they do. */
function letters(into, node, origin) {
  const style = getComputedStyle(node.parentElement);
  const range = document.createRange();
  const size = parseFloat(style.fontSize);
  for (const word of node.textContent.matchAll(/\S+/g)) {
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const area = range.getBoundingClientRect();
    if (!area.width) continue;
    into.append(
      make(
        "text",
        {
          x: area.left - origin.left,
          y: area.top - origin.top + area.height / 2 + size * 0.35,
          "font-size": size,
          "font-family": style.fontFamily,
          "font-weight": style.fontWeight,
          fill: style.color,
        },
        word[0],
      ),
    );
  }
}

function draw(into, node, origin) {
  if (node.nodeType === Node.TEXT_NODE) {
    letters(into, node, origin);
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE || node.matches(".tools, input, select, textarea, .unseen")) return;
  const area = node.getBoundingClientRect();
  if (!area.width || !area.height) return;
  const place = { x: area.left - origin.left, y: area.top - origin.top, width: area.width, height: area.height };
  if (node instanceof SVGSVGElement) {
    const copy = styled(node);
    if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${area.width} ${area.height}`);
    for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
    into.append(copy);
  } else if (node instanceof HTMLCanvasElement) {
    into.append(
      make("image", { ...place, href: node.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" }),
    );
  } else {
    backdrop(into, node, area, origin);
    node.childNodes.forEach(child => draw(into, child, origin));
  }
}

export function pictureOf(box) {
  const origin = box.getBoundingClientRect();
  const width = Math.ceil(origin.width);
  const height = Math.ceil(origin.height);
  const root = make("svg", {
    xmlns: SVG,
    viewBox: `-16 -16 ${width + 32} ${height + 32}`,
    width: width + 32,
    height: height + 32,
  });
  root.append(
    make("rect", {
      x: -16,
      y: -16,
      width: width + 32,
      height: height + 32,
      fill: getComputedStyle(document.body).backgroundColor,
    }),
  );
  box.childNodes.forEach(child => draw(root, child, origin));
  return new XMLSerializer().serializeToString(root);
}

export function save(name, text, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
