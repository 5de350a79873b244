// Everything the page says, in English and in Chinese.

import { chinese } from "./chinese.js";
import { chineseOthers } from "./chinese_others.js";
import { english } from "./english.js";
import { englishOthers } from "./english_others.js";
import { variants } from "./kinds.js";

const SAID = { en: { ...english, ...englishOthers }, zh: { ...chinese, ...chineseOthers } };
let spoken = "en";

export function speak(wanted) {
  spoken = wanted === "zh" || wanted === "en" ? wanted : navigator.language.startsWith("zh") ? "zh" : "en";
}
export const language = () => spoken;

/** `t("layer", { n: 2 })`: the words, with what stands in braces put in. */
export function t(name, values = {}) {
  const words = SAID[spoken][name];
  if (words === undefined) throw new Error(`no words for ${name}`);
  return words.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
}

/** The same about this model, which may need words of its own: those about others would not be true of it. */
export function tOf(name, model, values = {}) {
  const own = variants(model).map(variant => `${name}.${variant}`);
  return t(own.find(one => SAID[spoken][one] !== undefined) ?? name, values);
}

/** A subword as it is read: without the sign for a space, and the end as a sign. */
export const named = piece => (piece === "</s>" ? "■" : piece.replaceAll("▁", "") || "␣");

export function languageName(code) {
  try {
    return code ? new Intl.DisplayNames([spoken === "zh" ? "zh-Hans" : "en"], { type: "language" }).of(code) : "";
  } catch {
    return code;
  }
}
