// The page itself: what is above and beside the views, and when they are drawn.

import { html } from "./drawing.js";
import { pictureOf, save } from "./picture.js";
import { drawSentence, makeSentence, questionOf } from "./sentence.js";
import * as source from "./source.js";
import { onChange, set, state } from "./state.js";
import { language, speak, t } from "./words.js";
import { draw as beam } from "./beam.js";
import { draw as decoding } from "./decoding.js";
import { draw as head } from "./head.js";
import { draw as heads } from "./heads.js";
import { draw as map } from "./map.js";
import { draw as masks } from "./masks.js";
import { draw as positions } from "./positions.js";
import { draw as residual } from "./residual.js";
import { draw as subwords } from "./subwords.js";
import { draw as training } from "./training.js";
import { draw as translate } from "./translate.js";

const VIEWS = { translate, map, subwords, positions, masks, heads, head, decoding, beam, residual, training };
const EXAMPLES = {
  de: "Die meisten Japaner essen jeden Tag Reis.",
  en: "Most Japanese people eat rice every day.",
  zh: "大多数日本人每天都吃米饭。",
  fr: "La plupart des Japonais mangent du riz tous les jours.",
  es: "La mayoría de los japoneses come arroz todos los días.",
};
const find = id => document.getElementById(id);
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
let runs = [];
let turns = 0;
let model;

const isDark = () => (state.theme ? state.theme === "dark" : darkness.matches);

function drawTop() {
  const choice =
    runs.length > 1 || source.isFile
      ? html(
          "select",
          { "aria-label": t("run"), "data-key": "run", onchange: event => set({ run: event.target.value }) },
          runs.map(run =>
            html(
              "option",
              { value: run.name, selected: run.name === state.run },
              `${run.name} · ${run.src_lang} → ${run.tgt_lang}`,
            ),
          ),
        )
      : html("span", { class: "soft" }, state.run);
  const other = language() === "zh" ? "en" : "zh";
  find("top").replaceChildren(
    html("h1", {}, html("span", { class: "logo", "aria-hidden": "true" }), "regard"),
    choice,
    html("span", { class: "gap" }),
    html(
      "button",
      { class: "quiet", "data-key": "lang", lang: other, onclick: () => set({ lang: other }) },
      other === "zh" ? "中文" : "English",
    ),
    html(
      "button",
      { class: "quiet", "data-key": "theme", onclick: () => set({ theme: isDark() ? "light" : "dark" }) },
      t(isDark() ? "light" : "dark"),
    ),
  );
}

function drawNav() {
  const names = Object.keys(VIEWS);
  const at = names.indexOf(state.view);
  const go = index => set({ view: names[(index + names.length) % names.length] });
  const keys = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 };
  const list = html(
    "div",
    {
      role: "tablist",
      "aria-label": t("views"),
      onkeydown: event => {
        if (keys[event.key] !== undefined) {
          event.preventDefault();
          go(keys[event.key]);
        }
      },
    },
    names.map((name, n) =>
      html(
        "button",
        {
          role: "tab",
          id: `tab-${name}`,
          "data-key": "tab",
          "aria-selected": String(n === at),
          "aria-controls": "view",
          tabindex: n === at ? 0 : -1,
          onclick: () => set({ view: name }),
        },
        html("span", { class: "count" }, n),
        t(`${name}.title`),
      ),
    ),
  );
  list.querySelectorAll("[aria-selected=false]").forEach(tab => tab.removeAttribute("data-key"));
  find("views").replaceChildren(list);
  const chosen = list.children[at];
  if (list.scrollWidth > list.clientWidth)
    list.scrollLeft = chosen.offsetLeft - list.clientWidth / 2 + chosen.offsetWidth / 2;
}

/** A place that is filled when an answer comes; or says why none does. */
function later(coming, draw) {
  const place = html("div", { class: "later", "aria-busy": "true" }, html("p", { class: "soft" }, t("asking")));
  coming
    .then(draw, problem => html("p", { class: "soft" }, told(problem)))
    .then(found => {
      place.replaceChildren(...[found].flat());
      place.removeAttribute("aria-busy");
    });
  return place;
}

const told = problem => (problem instanceof source.NeedsModel ? t("needs-model") : problem.message || t("no-server"));

function context(look) {
  const question = questionOf(state);
  const named = piece => piece.replaceAll("▁", "") || "␣";
  return {
    look,
    model,
    runs,
    later,
    question,
    ask: changes => source.inspect({ ...question, ...changes }),
    askHead: one => source.inspectHead(question, one),
    sources: look && [...look.source.pieces.map(named), "</s>"],
    inputs: look && ["<s>", ...look.target.pieces.map(named)],
    outputs: look && [...look.target.pieces.map(named), "</s>"],
  };
}

function drawView(look) {
  const name = state.view;
  const body = html("div", { class: `body view-${name}` });
  const numbers =
    look || name === "training"
      ? VIEWS[name](body, context(look))
      : void body.append(html("p", { class: "soft" }, t("nothing")));
  const file = `${state.run}-${name}`;
  const downloads =
    numbers &&
    html(
      "div",
      { class: "tools" },
      html(
        "button",
        {
          class: "quiet",
          "data-key": "numbers",
          onclick: () => save(`${file}.json`, JSON.stringify(numbers, null, 1), "application/json"),
        },
        t("numbers"),
      ),
      html(
        "button",
        { class: "quiet", "data-key": "picture", onclick: () => save(`${file}.svg`, pictureOf(body), "image/svg+xml") },
        t("picture"),
      ),
    );
  show(
    html("header", {}, html("h2", {}, t(`${name}.title`)), downloads),
    html("p", { class: "lead" }, t(`${name}.lead`)),
    body,
  );
}

/** The new view in the old one's place, with the keyboard and the scroll bars where they were. */
function show(...nodes) {
  const view = find("view");
  const scrolled = {};
  view.querySelectorAll("[data-scroll]").forEach(node => {
    scrolled[node.dataset.scroll] = node.scrollLeft;
  });
  view.setAttribute("aria-labelledby", `tab-${state.view}`);
  view.removeAttribute("aria-busy");
  view.dataset.view = state.view;
  view.replaceChildren(...nodes);
  view.querySelectorAll("[data-scroll]").forEach(node => {
    node.scrollLeft = scrolled[node.dataset.scroll] ?? 0;
  });
}

async function redraw() {
  const turn = ++turns;
  const focused = document.activeElement?.dataset?.key;
  speak(state.lang);
  document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  if (!VIEWS[state.view]) state.view = "translate";
  if (!runs.some(run => run.name === state.run)) state.run = runs[0]?.name ?? "";
  document.title = `${t(`${state.view}.title`)} · regard`;
  drawTop();
  drawNav();
  find("view").setAttribute("aria-busy", "true");
  try {
    model = await source.model(state.run);
    if (!state.text && turn === 1) state.text = EXAMPLES[model.src_lang] ?? "";
    const look = state.text.trim() ? await source.inspect(questionOf(state)) : null;
    if (turn !== turns) return;
    drawSentence(look, model);
    drawView(look);
  } catch (problem) {
    if (turn !== turns) return;
    drawSentence(null, model, told(problem));
    show(html("h2", {}, t(`${state.view}.title`)), html("p", { class: "soft" }, told(problem)));
    if (!(problem instanceof source.Refused || problem instanceof source.NeedsModel)) throw problem;
  }
  if (focused && document.activeElement?.dataset?.key !== focused)
    document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  document.documentElement.dataset.drawn = String(turn);
}

async function begin() {
  for (const [name, value] of Object.entries(source.opening)) {
    if (!new URLSearchParams(location.hash.slice(1)).has(name)) state[name] = value;
  }
  speak(state.lang);
  makeSentence(find("sentence"));
  try {
    runs = await source.runs();
  } catch (problem) {
    show(html("p", { class: "soft" }, told(problem)));
    return;
  }
  onChange(redraw);
  darkness.addEventListener("change", redraw);
  await redraw();
}

begin();
