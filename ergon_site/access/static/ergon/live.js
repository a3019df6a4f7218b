// Live pages. A [data-live] part is read anew from the address that it names; on a page with [data-refresh] the parts
// #live and #pages are read from the page's own address, as a fragment. What has not changed is answered by 304.
// Fresh content is morphed into the page, so that focus, scroll, check marks and open folds stay as they are. An element
// with [data-keep] is left alone; "ergon:refreshed" is sent to a part that has changed.
const EVERY_MS = 5000;
const PATIENCE_MS = 20_000;
const PARTS = "#live, #pages";
const SKEW_MS = 10_000;

// What the reader has done to an element is not undone by a refresh.
const OWN = new Set(["checked", "open"]);
const MORPH = {
  ignoreActiveValue: true,
  callbacks: {
    beforeNodeMorphed: (old) => !(old instanceof Element && old.hasAttribute("data-keep")),
    beforeAttributeUpdated: (name) => !OWN.has(name),
  },
};

// Times, as how long ago or ahead they are; the exact one is told on hover, in the reader's zone. They go by the
// database's clock, which each page and each fragment tells: this computer's may be wrong, or be set meanwhile.
let skew = 0; // by how much the database's clock is ahead of this one
const UNITS = [[2 * 86_400, 86_400, "days"], [2 * 3600, 3600, "h"], [2 * 60, 60, "min"], [1, 1, "s"]];
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

function span(seconds) {
  const [, size, unit] = UNITS.find(([least]) => seconds >= least) ?? UNITS.at(-1);
  return `${Math.round(seconds / size)} ${unit}`;
}

function relative(seconds) {
  if (Math.abs(seconds) < 1) return "now";
  return seconds < 0 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
}

function tellTimes(root) {
  for (const time of root.querySelectorAll("time[data-ago]")) {
    const at = new Date(time.dateTime);
    const text = relative((Date.now() + skew - at) / 1000);
    if (time.textContent !== text) time.textContent = text;
    time.title ||= EXACT.format(at);
  }
}

// A moment on this computer, and the time since then: a clock that is set back stops neither refreshes nor ages.
const moment = () => ({ clock: Date.now(), steady: performance.now() });
const since = (then) => Math.max(Date.now() - then.clock, performance.now() - then.steady);

function compareClocks(told) {
  const ahead = Date.parse(told) - Date.now();
  skew = Math.abs(ahead) > SKEW_MS ? ahead : 0;
}

// On narrow screens the theme's lists have headings beside the values, as they are written in the code: in small letters.
function beginWithCapitals(root) {
  for (const cell of root.querySelectorAll(".result-list [data-label]")) {
    cell.dataset.label = cell.dataset.label.charAt(0).toUpperCase() + cell.dataset.label.slice(1);
  }
}

function prepare(root) {
  beginWithCapitals(root);
  tellTimes(root);
}

function morph(now, next, morphStyle) {
  Idiomorph.morph(now, next, { ...MORPH, morphStyle });
  window.htmx?.process(now); // buttons that open dialogs
  now.dispatchEvent(new CustomEvent("ergon:refreshed", { bubbles: true }));
}

function swapPart(part, html) {
  const fresh = document.createElement("div");
  fresh.innerHTML = html;
  prepare(fresh);
  morph(part, [...fresh.childNodes], "innerHTML");
}

const parse = (html) => new DOMParser().parseFromString(html, "text/html");

// What was moving has come to its end: the rest of its page has changed too, and nothing will any more.
async function end() {
  const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
  if (!answer.ok || answer.redirected) return location.reload();
  const fresh = parse(await answer.text());
  prepare(fresh);
  morph(document.getElementById("content"), fresh.getElementById("content"), "outerHTML");
  sources.length = 0;
  bar.remove();
}

async function swapPage(html) {
  const fresh = parse(html);
  const age = fresh.querySelector(".ergon-age");
  if (age && !age.dataset.refresh) return end();
  prepare(fresh);
  for (const next of fresh.querySelectorAll(PARTS)) {
    const now = document.getElementById(next.id);
    const [rows, nextRows] = [now, next].map((part) => part.querySelector("#result_list"));
    // Around the rows of a list the theme has put scroll bars of its own.
    if (rows && nextRows) morph(rows, nextRows, "outerHTML");
    else if (rows || nextRows) now.innerHTML = next.innerHTML;
    else morph(now, next, "outerHTML");
  }
}

// A dialog gives the focus back to the button that opened it, which must still be there; and nobody wants a text to
// move that they are marking or writing.
function isBusy() {
  const selected = getSelection();
  const isMarking = !selected.isCollapsed && selected.anchorNode?.parentElement?.closest("[data-live], #live");
  const isWriting = document.activeElement?.closest("[data-live], #live")
    && document.activeElement.matches("textarea, select, input:not([type=checkbox], [type=radio])");
  return document.querySelector("dialog[open]") !== null || isMarking || isWriting;
}

class SignedOut extends Error {}

class Source {
  constructor(element) {
    this.element = element;
    this.etag = this.address = "";
  }

  // The header says that nobody asked for it: a page that refreshes itself does not keep a session alive.
  async ask() {
    const address = this.element.dataset.live ?? location.href;
    if (address !== this.address) [this.address, this.etag] = [address, ""];
    const answer = await fetch(address, {
      credentials: "same-origin",
      redirect: "manual",
      cache: "no-store",
      headers: { "X-Ergon-Refresh": "1", ...(this.etag && { "If-None-Match": this.etag }) },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (answer.type === "opaqueredirect") throw new SignedOut();
    if (!answer.ok && answer.status !== 304) throw new Error(`the server answered ${answer.status}`);
    const told = answer.headers.get("X-Ergon-Time");
    if (told) compareClocks(told);
    if (answer.status === 304) return true;
    const html = await answer.text();
    if (isBusy()) return false;
    if (this.element.dataset.live !== undefined) swapPart(this.element, html);
    else await swapPage(html);
    this.etag = answer.headers.get("ETag") ?? "";
    return true;
  }
}

const sources = [...document.querySelectorAll("[data-live], .ergon-age[data-refresh]")].map((one) => new Source(one));
const state = { word: "live", updatedAt: moment(), askedAt: moment(), isAsking: false, problem: "" };

async function refresh() {
  if (state.isAsking) return;
  state.isAsking = true;
  state.askedAt = moment();
  try {
    const done = await Promise.all(sources.map((source) => source.ask()));
    if (done.every(Boolean)) state.updatedAt = moment();
    turn(state.word === "paused" ? "paused" : "live");
    tellAge();
  } catch (error) {
    state.problem = error instanceof SignedOut ? "Signed out" : "Connection lost";
    turn(error instanceof SignedOut ? "ended" : "lost");
    for (const note of document.querySelectorAll("[data-stale]")) note.hidden = false;
  } finally {
    state.isAsking = false;
    show();
  }
}

function tellAge() {
  const at = new Date(Date.now() + skew - since(state.updatedAt));
  const [date, clock] = at.toISOString().split(/[T.]/);
  for (const note of document.querySelectorAll(".ergon-age")) {
    const time = Object.assign(document.createElement("time"), { textContent: `${clock} UTC`, dateTime: `${date}T${clock}Z` });
    const stale = Object.assign(document.createElement("span"), { hidden: true, textContent: "; no response since, the data may be outdated" });
    stale.dataset.stale = "";
    note.replaceChildren("Updated at ", time, stale);
  }
}

// "Live · 3 s ago · Pause" in the header.
const WORDS = { live: "Live", paused: "Paused" };
const ACTS = { live: "Pause", paused: "Resume", lost: "Retry", ended: "Reload" };
const SAID = { live: "Refreshing again", paused: "Refreshing is paused", lost: "Connection lost, the data may be outdated", ended: "Signed out, the data is outdated" };
let bar = null;

function turn(word) {
  if (word === state.word) return;
  state.word = word;
  bar.querySelector("[role=status]").textContent = SAID[word];
}

function show() {
  if (!bar) return;
  bar.dataset.state = state.word;
  const ago = relative(since(state.updatedAt) / 1000);
  const texts = { "[data-word]": WORDS[state.word] ?? state.problem, "[data-since]": ago, button: ACTS[state.word] };
  for (const [place, text] of Object.entries(texts)) {
    const part = bar.querySelector(place);
    if (part.textContent !== text) part.textContent = text;
  }
  // Beside a button that pauses a pipeline it must be clear what this one pauses.
  bar.querySelector("button").ariaLabel = state.word === "ended" ? null : `${ACTS[state.word]} refreshing`;
}

function act() {
  if (state.word === "ended") return location.reload();
  if (state.word === "live") turn("paused");
  else {
    if (state.word === "paused") turn("live");
    refresh();
  }
  show();
}

function build() {
  bar = document.createElement("div");
  bar.className = "ergon-live";
  bar.innerHTML = '<span class="ergon-live-dot" aria-hidden="true"></span><span data-word></span><span class="ergon-live-since" data-since></span><button type="button"></button><span class="ergon-unseen" role="status"></span>';
  bar.querySelector("button").addEventListener("click", act);
  document.querySelector("#header-inner h1")?.parentElement.after(bar);
  show();
}

const isDue = () => since(state.askedAt) >= EVERY_MS && !["paused", "ended"].includes(state.word);

function tick() {
  if (document.hidden) return;
  if (sources.length && isDue() && !isBusy()) refresh();
  show();
  tellTimes(document);
}

const { servedAt } = document.getElementById("page")?.dataset ?? {};
if (servedAt) compareClocks(servedAt);
prepare(document);
if (sources.length) build();
setInterval(tick, 1000);
document.addEventListener("visibilitychange", tick);

// Columns: those that are not chosen are named by a cookie of this list, and left out by the server.
document.addEventListener("change", ({ target }) => {
  const menu = target.closest?.("[data-columns]");
  if (!menu) return;
  const left = [...menu.querySelectorAll("input:not(:checked)")].map((one) => one.name);
  document.cookie = `ergon-columns=${left.join(".")}; path=${location.pathname}; max-age=31536000; samesite=lax`;
  const address = new URL(location.href);
  address.searchParams.delete("o"); // the order goes by the places of columns
  sessionStorage.setItem("ergon-columns-open", location.pathname);
  location.replace(address);
});

const columns = document.querySelector("[data-columns]");
if (columns && sessionStorage.getItem("ergon-columns-open") === location.pathname) columns.open = true;
sessionStorage.removeItem("ergon-columns-open");

document.addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll(".ergon-menu[open]")) if (!menu.contains(target)) menu.open = false;
});
document.addEventListener("keydown", ({ key }) => {
  const menu = key === "Escape" && document.querySelector(".ergon-menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
