// The page: its header and navigation, and the drawing of the views.

import { html } from "./drawing.js";
import { keepingFocus } from "./focus.js";
import { pictureOf, save } from "./picture.js";
import { drawSentence, makeSentence, markBusy, questionOf } from "./sentence.js";
import * as source from "./source.js";
import { ANEW, isSayable, keep, onChange, set, state } from "./state.js";
import { language, named, speak, t, tOf } from "./words.js";
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
const WITHOUT_SENTENCE = ["positions", "training"];
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

const isDark = () => (state.theme ? state.theme === "dark" : darkness.matches);

function drawTop() {
  const choice =
    runs.length > 1 || source.isFile
      ? html(
          "select",
          {
            "aria-label": t("run"),
            "data-key": "run",
            onchange: event => set({ ...ANEW, off: "", run: event.target.value }),
          },
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

/** Give heat maps keys, because they can have the focus, too. */
function nameMatrices() {
  find("view")
    .querySelectorAll("svg.matrix")
    .forEach((node, n) => {
      node.dataset.key ??= `matrix-${n}`;
    });
}

/** Return an element that is filled when an answer arrives, or says why none does. */
function later(coming, draw) {
  const place = html("div", { class: "later", "aria-busy": "true" }, html("p", { class: "soft" }, t("asking")));
  const fill = found =>
    keepingFocus(() => {
      place.replaceChildren(...[found].flat());
      place.removeAttribute("aria-busy");
      nameMatrices();
    });
  coming
    .then(draw)
    .then(fill)
    .catch(problem => {
      if (problem instanceof source.Over) return; // this element is no longer needed either
      fill(html("p", { class: "soft" }, told(problem)));
      if (!isSaid(problem)) throw problem;
    });
  return place;
}

const told = problem => (problem instanceof source.NeedsModel ? t("needs-model") : problem.message || t("no-server"));
const isSaid = problem => problem instanceof source.Refused || problem instanceof source.NeedsModel;

function context(look, model) {
  const question = questionOf(state);
  const ask = async changes => {
    const whole = { ...question, ...changes };
    if (!isSayable(whole.target_pieces ?? [])) throw new source.Refused(t("no-words"));
    return source.inspectChanged(whole);
  };
  return {
    look,
    model,
    runs,
    later,
    told,
    question,
    ask,
    /** Ask a changed model for the probability of the same translation, and for its own translation. */
    askSame: changes => ask({ target: undefined, target_pieces: look.target.pieces, ...changes }),
    askHead: one => source.inspectHead(question, one),
    sources: look && [...look.source.pieces.map(named), "</s>"],
    inputs: look && ["<s>", ...look.target.pieces.map(named)],
    outputs: look && [...look.target.pieces.map(named), "</s>"],
  };
}

function drawView(look, model, problem) {
  const name = state.view;
  const body = html("div", { class: `body view-${name}` });
  const numbers =
    look || (model && WITHOUT_SENTENCE.includes(name))
      ? VIEWS[name](body, context(look, model))
      : void body.append(html("p", { class: "soft" }, problem ?? t("nothing")));
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
    html("p", { class: "lead" }, model ? tOf(`${name}.lead`, model.model) : t(`${name}.lead`)),
    body,
  );
}

/** Replace the view, and keep the focus and the scroll positions. */
function show(...nodes) {
  const view = find("view");
  const scrolled = {};
  view.querySelectorAll("[data-scroll]").forEach(node => {
    scrolled[node.dataset.scroll] = node.scrollLeft;
  });
  view.setAttribute("aria-labelledby", `tab-${state.view}`);
  view.removeAttribute("aria-busy");
  view.dataset.view = state.view;
  keepingFocus(() => {
    view.replaceChildren(...nodes);
    nameMatrices();
  });
  view.querySelectorAll("[data-scroll]").forEach(node => {
    node.scrollLeft = scrolled[node.dataset.scroll] ?? 0;
  });
}

/** Draw what needs no answer: texts, colours, the run and the navigation. */
function drawFrame() {
  speak(state.lang);
  document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  if (!Object.hasOwn(VIEWS, state.view)) state.view = "translate";
  if (!runs.some(run => run.name === state.run)) state.run = runs[0]?.name ?? "";
  document.title = `${t(`${state.view}.title`)} · regard`;
  keepingFocus(drawTop);
  keepingFocus(drawNav);
  find("view").setAttribute("aria-busy", "true");
  markBusy();
}

/** Fetch the model and its look at the sentence, as far as they are available. */
async function answers(turn) {
  const found = {};
  try {
    found.model = await source.model(state.run);
    if (state.text === null && turn === turns) keep({ text: EXAMPLES[found.model.src_lang] ?? "" });
    if (state.text?.trim() && turn === turns) found.look = await source.inspect(questionOf(state));
  } catch (problem) {
    found.problem = problem;
  }
  return found;
}

async function redraw() {
  const turn = ++turns;
  drawFrame();
  source.begin(questionOf(state));
  const { model, look, problem } = await answers(turn);
  if (turn !== turns) return;
  const said = problem && told(problem);
  keepingFocus(() => drawSentence(look, model, said));
  try {
    drawView(look, model, said);
  } catch (fault) {
    show(html("h2", {}, t(`${state.view}.title`)), html("p", { class: "soft" }, told(fault)));
    throw fault;
  } finally {
    source.end();
    document.documentElement.dataset.drawn = String(turn);
  }
  if (problem && !isSaid(problem)) throw problem;
}

async function begin() {
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
