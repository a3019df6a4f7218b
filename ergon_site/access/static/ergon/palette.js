// The palette: Ctrl-K, or the button in the header, finds pages, rows, saved views and acts while somebody types. The
// focus stays in the field; the line that Enter opens is told to screen readers as the active one of a list.
const palette = document.getElementById("palette");
const field = document.getElementById("palette-text");
const list = document.getElementById("palette-lines");
const said = document.getElementById("palette-note");
const PAUSE_MS = 150;
let asking = null;
let soon = 0;

const lines = () => [...list.querySelectorAll("[role=option]")];

function choose(line) {
  for (const one of lines()) one.setAttribute("aria-selected", String(one === line));
  if (line) field.setAttribute("aria-activedescendant", line.id);
  else field.removeAttribute("aria-activedescendant");
  line?.scrollIntoView({ block: "nearest" });
}

function element(name, className, text) {
  return Object.assign(document.createElement(name), { className, textContent: text });
}

function show(sections) {
  let number = 0;
  const groups = sections.map(({ title, lines: found }) => {
    const group = element("div", "ergon-palette-group", "");
    group.setAttribute("role", "group");
    const heading = group.appendChild(element("p", "ergon-palette-title", title));
    heading.id = `palette-group-${number}`;
    group.setAttribute("aria-labelledby", heading.id);
    for (const [name, note, address] of found) {
      const line = element("a", "ergon-palette-line", "");
      Object.assign(line, { id: `palette-line-${number++}`, href: address, tabIndex: -1 });
      line.setAttribute("role", "option");
      line.append(element("span", "ergon-palette-name", name), element("span", "ergon-hint", note));
      group.append(line);
    }
    return group;
  });
  list.replaceChildren(...groups);
  field.setAttribute("aria-expanded", String(number > 0));
  said.textContent = number ? "" : "No results. Ids are found by their start, names by any part.";
  choose(lines()[0]);
}

async function ask() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    const address = `${palette.dataset.address}?${new URLSearchParams({ q: field.value })}`;
    const answer = await fetch(address, { signal, credentials: "same-origin", redirect: "error", headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(answer.status);
    const { sections } = await answer.json();
    if (!signal.aborted) show(sections);
  } catch {
    // Somebody has typed on, or nobody answers: then old lines must not look like new ones.
    if (signal.aborted) return;
    list.replaceChildren();
    choose(null);
    said.textContent = "The search got no answer. Reload the page, or try again.";
  }
}

function open() {
  if (palette.open || document.querySelector("dialog[open]")) return;
  field.value = "";
  list.replaceChildren();
  said.textContent = "";
  palette.showModal();
  field.focus();
  ask();
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    if (palette.open) palette.close();
    else open();
  }
});

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-palette]")) return;
  event.preventDefault();
  open();
});

field.addEventListener("input", () => {
  clearTimeout(soon);
  soon = setTimeout(ask, PAUSE_MS);
});

field.addEventListener("keydown", (event) => {
  const all = lines();
  const place = all.findIndex((line) => line.getAttribute("aria-selected") === "true");
  const next = { ArrowDown: (place + 1) % all.length, ArrowUp: (place - 1 + all.length) % all.length }[event.key];
  if (next !== undefined && all.length) {
    event.preventDefault();
    choose(all[next]);
  } else if (event.key === "Enter") {
    event.preventDefault();
    all[place]?.click();
  } else if (event.key === "Escape") {
    // A search field would only empty itself.
    event.preventDefault();
    palette.close();
  }
});
