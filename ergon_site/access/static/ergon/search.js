// Suggests the filters of a list and their values while somebody types in its search field. The values are those that
// the filters of the page offer: nothing is fetched.
const search = document.getElementById("searchbar");
const MOST = 10;

function offered(name) {
  const options = document.querySelectorAll(`#changelist-filter select[name="${CSS.escape(name)}"] option`);
  return [...options].filter((option) => option.value).map((option) => [option.value, option.label]);
}

// The word before the cursor, and where it begins.
function word() {
  const before = search.value.slice(0, search.selectionStart);
  const text = before.match(/(?:[^\s:"]+:)?(?:"[^"]*|\S*)$/)[0];
  return { text, start: before.length - text.length };
}

function suggestions(text) {
  const [, name, value] = text.match(/^([^\s:"]+):(.*)$/s) ?? [];
  if (name === undefined) {
    const begun = text.toLowerCase();
    const names = (search.dataset.names ?? "").split(" ").filter((one) => one && one.startsWith(begun));
    return text ? names.map((one) => [one.endsWith(".") ? one : `${one}:`, one.endsWith(".") ? "a path and a value" : "filter"]) : [];
  }
  const begun = value.replaceAll('"', "").toLowerCase();
  const alike = offered(name.toLowerCase()).filter(([one, title]) => [one, title].some((part) => part.toLowerCase().includes(begun)));
  return alike.map(([one, title]) => [`${name}:${/\s/.test(one) ? `"${one}"` : one} `, title === one ? "" : title]);
}

if (search) {
  const list = Object.assign(document.createElement("ul"), { id: "search-suggestions", className: "ergon-suggestions", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  search.closest(".ergon-search-box").append(list);
  search.setAttribute("role", "combobox");
  search.setAttribute("aria-autocomplete", "list");
  search.setAttribute("aria-controls", list.id);
  search.setAttribute("aria-expanded", "false");

  const chosen = () => list.querySelector("[aria-selected=true]");

  const choose = (line) => {
    for (const one of list.children) one.setAttribute("aria-selected", String(one === line));
    if (line) search.setAttribute("aria-activedescendant", line.id);
    else search.removeAttribute("aria-activedescendant");
  };

  const hide = () => {
    list.hidden = true;
    search.setAttribute("aria-expanded", "false");
    choose(null);
  };

  const show = () => {
    const found = suggestions(word().text).slice(0, MOST);
    list.replaceChildren(
      ...found.map(([text, note], number) => {
        const line = Object.assign(document.createElement("li"), { id: `suggestion-${number}` });
        line.setAttribute("role", "option");
        line.dataset.text = text;
        line.append(
          Object.assign(document.createElement("span"), { textContent: text }),
          Object.assign(document.createElement("span"), { className: "ergon-hint", textContent: note }),
        );
        return line;
      }),
    );
    if (!found.length) return hide();
    list.hidden = false;
    search.setAttribute("aria-expanded", "true");
    choose(null);
  };

  const take = (line) => {
    const { start } = word();
    const after = search.value.slice(search.selectionStart);
    search.value = search.value.slice(0, start) + line.dataset.text + after.trimStart();
    const end = start + line.dataset.text.length;
    search.setSelectionRange(end, end);
    search.focus();
    show();
  };

  search.addEventListener("input", show);
  search.addEventListener("blur", hide);
  // A press, not a click: the field would have lost the focus before.
  list.addEventListener("mousedown", (event) => {
    event.preventDefault();
    const line = event.target.closest("li");
    if (line) take(line);
  });
  search.addEventListener("keydown", (event) => {
    const all = [...list.children];
    if (list.hidden || !all.length) return;
    const place = all.indexOf(chosen());
    if (event.key === "ArrowDown") choose(all[(place + 1) % all.length]);
    else if (event.key === "ArrowUp") choose(all[(place - 1 + all.length) % all.length]);
    else if (event.key === "Escape") hide();
    else if ((event.key === "Enter" || event.key === "Tab") && chosen()) take(chosen());
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
