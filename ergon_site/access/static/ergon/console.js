// Refreshes every [data-live] part from its address, not while the tab is hidden, and says so when no answer comes.
const EVERY_MS = 5000;
// The header says that nobody asked for it: a page that refreshes itself does not keep a session alive.
const REFRESH = { credentials: "same-origin", redirect: "error", headers: { "X-Ergon-Refresh": "1" } };

// A dialog gives the focus back to the button that opened it, which must still be there.
const hasDialog = () => document.querySelector("dialog[open]") !== null;

async function refresh(part) {
  if (document.hidden || hasDialog() || part.contains(document.activeElement)) return;
  try {
    const answer = await fetch(part.dataset.live, REFRESH);
    if (!answer.ok) throw new Error(answer.status);
    const fresh = await answer.text();
    if (hasDialog()) return;
    part.innerHTML = fresh;
    window.htmx?.process(part); // buttons that open dialogs
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

// On narrow screens a list has its headings beside the values, as they are written in the code: in small letters.
function beginWithCapitals(part) {
  for (const cell of part.querySelectorAll(".result-list [data-label]")) {
    cell.dataset.label = cell.dataset.label.charAt(0).toUpperCase() + cell.dataset.label.slice(1);
  }
}

beginWithCapitals(document);

// Lists, and pages of what goes on, refresh themselves too: the part that [data-refresh] names is read anew from the
// page's own address, unless somebody is choosing, typing, or marking something.
const isBusy = () =>
  document.hidden ||
  hasDialog() ||
  document.activeElement?.closest("#content") ||
  document.querySelector("#content .action-select:checked") ||
  !getSelection().isCollapsed;

async function reread(note) {
  if (isBusy()) return;
  try {
    const answer = await fetch(location.href, REFRESH);
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [now, next] = [document, fresh].map((page) => page.querySelector(note.dataset.refresh));
    const told = fresh.querySelector(".ergon-age");
    const hasEnded = !told?.dataset.refresh;
    if (!now !== !next || hasEnded) return location.reload();
    if (isBusy()) return;
    if (now) {
      now.innerHTML = next.innerHTML;
      beginWithCapitals(now);
      window.htmx?.process(now);
    }
    note.innerHTML = told.innerHTML;
  } catch {
    note.querySelector("[data-stale]")?.removeAttribute("hidden");
  }
}

for (const note of document.querySelectorAll("[data-refresh]")) setInterval(reread, EVERY_MS, note);
