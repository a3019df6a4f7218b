// Lists with check boxes: the box in the heading selects the page, Shift selects a range, and the bar, which the style
// sheet shows while a box is checked, says how many are selected. Without this script, boxes and buttons work all the same.
const BOX = "input.action-select";
const boxesOf = (form) => [...form.querySelectorAll(BOX)];
let last = null;

function tell(bar) {
  const form = bar.closest("form");
  const boxes = boxesOf(form);
  const count = boxes.filter((box) => box.checked).length;
  const across = bar.querySelector("[data-across]");
  if (across && !count) across.checked = false;
  const noun = count === 1 ? bar.dataset.noun : bar.dataset.nouns;
  const text = across?.checked ? across.dataset.words : `${count} ${noun} selected`;
  const told = bar.querySelector("[data-selected]");
  if (told.textContent !== text) told.textContent = text;
  const page = form.querySelector("#action-toggle");
  if (page) {
    page.checked = count > 0 && count === boxes.length;
    page.indeterminate = count > 0 && count < boxes.length;
  }
  for (const box of boxes) {
    const row = box.closest("tr");
    row.dataset.key ??= box.value;
    row.classList.toggle("ergon-selected", box.checked);
  }
}

const tellAll = () => document.querySelectorAll("[data-selection]").forEach(tell);

document.addEventListener("change", ({ target }) => {
  if (target.id === "action-toggle") for (const box of boxesOf(target.closest("form"))) box.checked = target.checked;
  if (target.matches(`#action-toggle, [data-across], ${BOX}`)) tellAll();
});

document.addEventListener("click", (event) => {
  const { target } = event;
  if (target.closest("[data-unselect]")) {
    event.preventDefault();
    const form = target.closest("form");
    for (const box of boxesOf(form)) box.checked = false;
    tellAll();
    form.querySelector("#action-toggle")?.focus(); // the button is gone with the selection
  }
  if (!target.matches(BOX)) return;
  const boxes = boxesOf(target.closest("form"));
  const [from, to] = [boxes.indexOf(last), boxes.indexOf(target)].sort((one, other) => one - other);
  if (event.shiftKey && from >= 0) for (const box of boxes.slice(from, to + 1)) box.checked = target.checked;
  last = target;
});

// Rows that a refresh has swapped in, and boxes that the browser has filled in again on the way back.
const list = document.getElementById("changelist");
if (list) new MutationObserver(tellAll).observe(list, { childList: true, subtree: true });
addEventListener("pageshow", tellAll);
tellAll();
