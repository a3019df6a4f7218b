// Refreshes every [data-live] part from its address, not while the tab is hidden, and says so when no answer comes.
const EVERY_MS = 5000;

async function refresh(part) {
  if (document.hidden || part.contains(document.activeElement)) return;
  try {
    const answer = await fetch(part.dataset.live, { credentials: "same-origin", redirect: "error" });
    if (!answer.ok) throw new Error(answer.status);
    part.innerHTML = await answer.text();
  } catch {
    part.querySelector("[data-stale]")?.removeAttribute("hidden");
  }
}

for (const part of document.querySelectorAll("[data-live]")) setInterval(refresh, EVERY_MS, part);

// Says below a [data-json] field, while somebody types, what keeps its text from being JSON.
function judge(field) {
  let word = field.parentElement.querySelector("[data-json-word]");
  if (!word) {
    word = Object.assign(document.createElement("p"), { className: "ergon-wrong" });
    word.dataset.jsonWord = "";
    word.setAttribute("aria-live", "polite");
    field.after(word);
  }
  try {
    if (field.value.trim()) JSON.parse(field.value);
    word.textContent = "";
  } catch (error) {
    word.textContent = `Not JSON yet: ${error.message}`;
  }
}

for (const field of document.querySelectorAll("[data-json]")) field.addEventListener("input", () => judge(field));
