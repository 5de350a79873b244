// Everything the page says, in English and in Chinese.

import { english } from "./english.js";
import { chinese } from "./chinese.js";

let spoken = "en";

export function speak(wanted) {
  spoken = wanted === "zh" || wanted === "en" ? wanted : navigator.language.startsWith("zh") ? "zh" : "en";
}
export const language = () => spoken;

/** `t("layer", { n: 2 })`: the words, with what stands in braces put in. */
export function t(name, values = {}) {
  const words = (spoken === "zh" ? chinese : english)[name];
  if (words === undefined) throw new Error(`no words for ${name}`);
  return words.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
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
