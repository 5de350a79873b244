// Access to all texts of the page, in English and Chinese.

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

/** Return a text with its placeholders filled: `t("layer", { n: 2 })`. */
export function t(name, values = {}) {
  const words = SAID[spoken][name];
  if (words === undefined) throw new Error(`no words for ${name}`);
  return words.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
}

/** Return a text on this model: its kind's own version if there is one, because the general text may not hold for it. */
export function tOf(name, model, values = {}) {
  const own = variants(model).map(variant => `${name}.${variant}`);
  return t(own.find(one => SAID[spoken][one] !== undefined) ?? name, values);
}

/** Return a subword for reading: without the space marker, and with a symbol for the end. */
export const named = piece => (piece === "</s>" ? "■" : piece.replaceAll("▁", "") || "␣");

export function languageName(code) {
  try {
    return code ? new Intl.DisplayNames([spoken === "zh" ? "zh-Hans" : "en"], { type: "language" }).of(code) : "";
  } catch {
    return code;
  }
}
