// Whatever is drawn anew, the keyboard stays where it was.

/** What is half typed goes on in the new field, unless that has something else to say. A browser would not call it a change. */
function carry(before, after) {
  const isTyped = before.matches("input[type=text]") && before.value !== before.defaultValue;
  if (!isTyped || after.defaultValue !== before.defaultValue) return;
  after.value = before.value;
  after.setSelectionRange(before.selectionStart, before.selectionEnd);
  const tell = () => {
    if (after.value !== after.defaultValue) after.dispatchEvent(new Event("change"));
  };
  after.addEventListener("blur", () => after.isConnected && tell());
  after.addEventListener("keydown", event => event.key === "Enter" && tell());
}

/** Who had the focus and is gone has it again, under the same key; it is never taken from anyone who is still there. */
export function keepingFocus(draw) {
  const before = document.activeElement;
  const key = before?.dataset?.key;
  const view = before?.closest?.("main");
  draw();
  if (!before || before === document.body || before.isConnected) return;
  const after = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  (after || view)?.focus({ preventScroll: true });
  if (after) carry(before, after);
}
