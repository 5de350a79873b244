// View 0: alternatives for each word, the attention of a word, the n best translations, and the command that prints them.

import { bars, html, number, percent, shown, textOf } from "./drawing.js";
import { attended, chosenPlace } from "./sentence.js";
import * as source from "./source.js";
import { FREE, isSayable, set, state } from "./state.js";
import { named, t, tOf } from "./words.js";

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

/** Force the prefix before this place, and then this piece. EOS makes it a whole translation. */
function goOn(look, place, piece) {
  const pieces = [...look.target.pieces.slice(0, place), piece].join(" ");
  set({ ...FREE, [piece === "</s>" ? "target_pieces" : "prefix_pieces"]: pieces, place });
}

function alternatives(look, place) {
  const one = look.predictions[place];
  const before = look.target.pieces.slice(0, place);
  const words = textOf(before);
  const rows = one.best.map((other, n) => ({
    name: other.piece === "</s>" ? "■ </s>" : shown(other.piece),
    value: Math.exp(other.log_prob),
    text: percent(Math.exp(other.log_prob)),
    chosen: other.piece === one.piece,
    key: `other-${n}`,
    title: t("translate.from-here"),
    pick: isSayable([...before, other.piece]) ? () => goOn(look, place, other.piece) : undefined,
  }));
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("translate.others", { piece: named(one.piece) })),
    html(
      "p",
      { class: "soft" },
      t("translate.others.why", { before: words ? `“${words} …”` : t("translate.beginning"), rank: one.rank }),
    ),
    bars(rows, { most: 1, label: t("translate.others", { piece: one.piece }) }),
  );
}

/** Show what a word attended to, or say why there is nothing to show. */
function lookedAt(look, place, model) {
  const weights = attended(look, place);
  const rows = weights?.map((value, n) => ({ name: named(look.source.pieces[n]), value, text: percent(value) }));
  const told = { layer: look.alignment && look.alignment.layer + 1, size: look.fixed.length };
  return html(
    "section",
    { class: "card" },
    html("h3", {}, t("translate.looked", { piece: named(look.predictions[place].piece) })),
    html("p", { class: "soft" }, tOf("translate.looked.why", model, told)),
    rows && bars(rows, { most: 1 }),
  );
}

function nBest(look) {
  const rows = look.search.hypotheses.map((one, n) =>
    html(
      "tr",
      {},
      html("td", { class: "number" }, n + 1),
      html(
        "td",
        { dir: "auto" },
        html(
          "button",
          {
            class: "link",
            "data-key": `best-${n}`,
            disabled: !isSayable(one.pieces),
            onclick: () => set({ ...FREE, target_pieces: one.pieces.join(" "), place: "" }),
          },
          one.text || "■",
        ),
      ),
      html("td", { class: "number" }, number(one.log_prob, 2)),
      html("td", { class: "number" }, number(one.score, 3)),
    ),
  );
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("translate.n-best")),
    html("p", { class: "soft" }, t("translate.n-best.why")),
    html(
      "div",
      { class: "scroll" },
      html(
        "table",
        {},
        html(
          "thead",
          {},
          html(
            "tr",
            {},
            ["#", t("target"), "log P", t("score")].map((word, n) => html("th", { class: n === 1 ? "" : "number" }, word)),
          ),
        ),
        html("tbody", {}, rows),
      ),
    ),
  );
}

/** Return the run's languages if the server uses this run for them: it uses the first of several. */
function languages(runs) {
  const own = runs.find(run => run.name === state.run);
  const first = runs.find(run => run.src_lang === own.src_lang && run.tgt_lang === own.tgt_lang);
  return first === own ? { source: own.src_lang, target: own.tgt_lang } : undefined;
}

const asText = question => ({ q: question.text, beam: question.beam, alpha: question.alpha });

/** Show the whole translation of a text that is translated in several parts. */
function whole({ look, runs, question, later }, numbers) {
  const between = languages(runs);
  if (look.parts.length < 2 || source.isFile || !between) return "";
  const coming = source.translate({ ...asText(question), ...between });
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("translate.whole")),
    html("p", { class: "soft" }, t("translate.whole.why", { n: look.parts.length })),
    later(coming, ({ translatedText: text }) => {
      numbers.whole = text;
      return text.split("\n").map(line => html("p", { class: "big", dir: "auto", "data-whole": "" }, line));
    }),
  );
}

/** Return the command for the translation shown: a request to the public API or, where that differs, the page's own. */
function lineFor({ runs, question }) {
  if (source.isFile)
    return `echo ${quoted(question.text)} | regard translate RUN --beam ${question.beam} --alpha ${question.alpha}`;
  const between = languages(runs);
  const isFree = Object.keys(FREE).every(name => !state[name]);
  const [path, body] =
    between && isFree
      ? ["translate", { ...asText(question), ...between, alternatives: Math.min(3, question.beam - 1) }]
      : ["inspect", question];
  const address = `${location.origin}${location.pathname.replace(/[^/]*$/, "")}${path}`;
  return `curl -s ${address} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
}

function command(context) {
  const line = lineFor(context);
  const done = html("span", { class: "soft", "aria-live": "polite" });
  const copy = html(
    "button",
    {
      "data-key": "copy",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(line);
          done.textContent = t("copied");
        } catch {
          done.textContent = t("copy.yourself");
        }
      },
    },
    t("copy"),
  );
  return html(
    "section",
    { class: "card wide" },
    html("h3", {}, t("translate.curl")),
    html("pre", { tabindex: 0 }, line),
    html("div", { class: "row" }, copy, done),
  );
}

export function draw(body, context) {
  const { look } = context;
  const place = chosenPlace(look);
  const numbers = {
    text: look.source.text,
    translation: look.target.text,
    log_prob: look.log_prob,
    predictions: look.predictions,
    n_best: look.search.hypotheses,
    place,
    attended: attended(look, place),
  };
  body.append(
    html("p", { class: "soft hint" }, t("translate.hint")),
    html("div", { class: "columns" }, alternatives(look, place), lookedAt(look, place, context.model.model)),
    whole(context, numbers),
    nBest(look),
    command(context),
  );
  return numbers;
}
