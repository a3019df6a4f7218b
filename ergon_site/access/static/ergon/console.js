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
