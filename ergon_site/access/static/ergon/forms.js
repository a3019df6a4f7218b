// Buttons that fill in a field: [data-fills] names the field, the button's value is what it gets.
document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-fills]");
  const field = button && document.getElementById(button.dataset.fills);
  if (!field) return;
  field.value = button.value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
});

// [data-copy] copies the text of the element that it names. Where the browser does not let it, the text is selected.
async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const word = button.parentElement.querySelector("[data-copied]");
  try {
    await navigator.clipboard.writeText(source.textContent);
    word.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(source);
    word.textContent = "Selected: press Ctrl+C to copy.";
  }
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-copy]");
  if (button) copy(button);
});

document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
});

// Ids that are shortened in a table are copied whole.
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  const ids = [...document.querySelectorAll(".ergon-id[title]")].filter((one) => selection.containsNode(one, true));
  const whole = ids.reduce((text, one) => text.replace(one.textContent, () => one.title), selection.toString());
  if (whole === selection.toString()) return;
  event.clipboardData.setData("text/plain", whole);
  event.preventDefault();
});

// A rehearsal that nobody waits for is cancelled when its page is left, by the time at which this page asked for it: a
// page that has asked for the same one since goes on waiting.
document.addEventListener("DOMContentLoaded", () => {
  const waiting = document.querySelector("[data-asked-at]");
  const token = document.querySelector("[name=csrfmiddlewaretoken]");
  if (!waiting || !token) return;
  const [address, askedAt] = [waiting.getAttribute("hx-get"), waiting.dataset.askedAt];
  addEventListener("pagehide", () => {
    if (!document.querySelector("[data-asked-at]")) return;
    const sent = new FormData();
    sent.set("csrfmiddlewaretoken", token.value);
    sent.set("asked_at", askedAt);
    navigator.sendBeacon(address, sent);
  });
});
