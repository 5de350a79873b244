// Whatever is drawn anew, the keyboard stays where it was.

const silent = event => event.stopImmediatePropagation();

/** What is half typed goes on in the new field, unless that has something else to say. Browsers would not call it a change. */
function carry(before, after) {
  if (before.value === before.defaultValue || after.defaultValue !== before.defaultValue) return;
  after.value = before.value;
  const tell = () => {
    if (after.isConnected && after.value !== after.defaultValue) after.dispatchEvent(new Event("change"));
  };
  after.addEventListener("blur", tell);
  after.addEventListener("keydown", event => event.key === "Enter" && tell());
}

/** Who had the focus and is gone has it again, under the same key; it is never taken from anyone who is still there. */
export function keepingFocus(draw) {
  const before = document.activeElement;
  if (!before || before === document.body) return void draw();
  const view = before.closest("main");
  const selection = before.matches("input[type=text]") && [before.selectionStart, before.selectionEnd];
  before.addEventListener("change", silent, true); // to be taken away is no change, though some browsers say so
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
