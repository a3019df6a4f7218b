// Shortcuts of a single key: off while somebody types or a dialog is open, and off for good in a browser where somebody
// switched them off. Rows may be exchanged at any time by a refresh: they are looked for when a key is pressed.
const SWITCH = "ergonKeys";
const TYPING = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select, [contenteditable=true]";
const keys = document.getElementById("keys");
const isOn = document.getElementById("keys-on");
const told = document.getElementById("keys-said");
let silence = 0;

function say(text) {
  told.textContent = text;
  told.hidden = false;
  clearTimeout(silence);
  silence = setTimeout(() => (told.hidden = true), 6000);
}

const rows = () => [...document.querySelectorAll("#result_list tbody tr")];
const linkOf = (row) => row?.querySelector("th a, td a");
const current = () => document.activeElement?.closest("#result_list tbody tr") ?? null;

function move(by) {
  const all = rows();
  const place = all.indexOf(current());
  const next = all[place === -1 ? 0 : Math.min(Math.max(place + by, 0), all.length - 1)];
  linkOf(next)?.focus();
}

function select() {
  const box = current()?.querySelector("input.action-select");
  if (box) box.click();
  else say(current() ? "Rows of this list cannot be selected." : "Press j to go to a row first.");
}

// The selection's own button, if rows are selected; else the dialog that replays the row.
function replay() {
  const search = document.getElementById("searchbar");
  const refusal = search?.dataset.refusal;
  if (refusal) return say(refusal);
  if (document.querySelector("#result_list .action-select:checked")) {
    const button = document.querySelector("[data-selection] button[formaction*=replay]");
    return button && !button.disabled ? button.click() : say(button?.title || "The selected rows cannot be replayed.");
  }
  const address = linkOf(current())?.getAttribute("href");
  if (!address || !search?.dataset.replay) return say(address ? "Rows of this list cannot be replayed." : "Press j to go to a row first.");
  const target = address.replace(/change\/$/, search.dataset.replay);
  if (!window.htmx) return location.assign(target);
  window.htmx.ajax("GET", target, { source: linkOf(current()), target: "#modal-content", select: "#dialog" });
}

const ACTS = {
  "?": () => keys.showModal(),
  "/": () => document.getElementById("searchbar")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  x: select,
  r: replay,
};

isOn.checked = localStorage.getItem(SWITCH) !== "off";
isOn.addEventListener("change", () => localStorage.setItem(SWITCH, isOn.checked ? "on" : "off"));

document.addEventListener("click", ({ target }) => {
  if (target.closest("[data-keys]")) keys.showModal();
});

document.addEventListener("keydown", (event) => {
  const act = ACTS[event.key];
  if (!act || !isOn.checked || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest(TYPING) || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  act();
});
