// Dialogs are the browser's own: they keep the focus, close with Escape and are known to screen readers as dialogs. An
// answer that is swapped into #modal opens it, with the focus in the first field, or in the first that is wrong.
const modal = document.getElementById("modal");
const FIELDS = "input:not([type=hidden]), textarea, select";
let opener = null;

document.addEventListener("click", ({ target }) => {
  const opens = target.closest("[data-opens]");
  if (opens) document.getElementById(opens.dataset.opens).showModal();
  if (target.closest("[data-close]")) target.closest("dialog").close();
});

document.addEventListener("htmx:afterSettle", ({ detail }) => {
  if (!modal.contains(detail.target) && detail.target.id !== "dialog") return;
  // Instead of what was asked for the login page, or another, has come.
  if (!modal.querySelector("form")) return location.assign(detail.pathInfo.finalRequestPath);
  if (!modal.open) {
    opener = detail.requestConfig.elt;
    modal.showModal();
  }
  (modal.querySelector("[aria-invalid=true]") ?? modal.querySelector(FIELDS))?.focus();
});

// The browser gives the focus back to what had it; where a click gives none, that is not the button. A refresh may have
// put another button in its place.
modal.addEventListener("close", () => {
  if (opener && !opener.isConnected) {
    opener = document.querySelector(`[hx-get="${CSS.escape(opener.getAttribute("hx-get"))}"]`);
  }
  opener?.focus();
  modal.firstElementChild.replaceChildren();
});

function tell({ detail }) {
  const place = modal.querySelector("[data-failed]");
  if (!place) return location.assign(detail.pathInfo.finalRequestPath);
  const answer = new DOMParser().parseFromString(detail.xhr.responseText, "text/html");
  const said = answer.querySelector("[data-error]")?.textContent ?? `The server answered ${detail.xhr.status}. Try again.`;
  place.textContent = `Not done. ${detail.xhr.status ? said : "The server cannot be reached. Try again."}`;
  place.hidden = false;
}

function isOfDialog({ detail }) {
  return detail.target?.id === "modal-content" || modal.contains(detail.elt);
}

for (const fault of ["htmx:responseError", "htmx:sendError"]) {
  document.addEventListener(fault, (event) => isOfDialog(event) && tell(event));
}
