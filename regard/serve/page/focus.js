// Keeps the keyboard focus, and half-typed text, when the page is redrawn.

const silent = event => event.stopImmediatePropagation();

/** Copy half-typed text to the new field, unless its content has changed. Browsers would fire no change event for it. */
function carry(before, after) {
  if (before.value === before.defaultValue || after.defaultValue !== before.defaultValue) return;
  after.value = before.value;
  const tell = () => {
    if (after.isConnected && after.value !== after.defaultValue) after.dispatchEvent(new Event("change"));
  };
  after.addEventListener("blur", tell);
  after.addEventListener("keydown", event => event.key === "Enter" && tell());
}

/** Redraw, then focus the element with the same key if the focused one was removed. Other elements never lose the focus. */
export function keepingFocus(draw) {
  const before = document.activeElement;
  if (!before || before === document.body) return void draw();
  const view = before.closest("main");
  const selection = before.matches("input[type=text]") && [before.selectionStart, before.selectionEnd];
  before.addEventListener("change", silent, true); // some browsers fire a change event for a removed field
  draw();
  before.removeEventListener("change", silent, true);
  if (before.isConnected) return;
  const key = before.dataset.key;
  const after = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  (after || view)?.focus({ preventScroll: true });
  if (!after || !selection) return;
  carry(before, after);
  after.setSelectionRange(...selection);
}
