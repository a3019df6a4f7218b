// Shows in the sidebar how many attention items and dead letters there are. A number that is not known is not shown.
const REFRESHED_MS = 15000;
// The header says that nobody asked for it: a page that refreshes itself does not keep a session alive.
const ASK = { credentials: "same-origin", redirect: "error", headers: { "X-Ergon-Refresh": "1" } };

async function showBadges() {
  const menu = document.querySelector("[data-badges]");
  if (!menu || document.hidden) return;
  let counts = {};
  try {
    const answer = await fetch(menu.dataset.badges, ASK);
    if (answer.ok) counts = await answer.json();
  } catch {
    // Without an answer all are hidden.
  }
  for (const badge of menu.querySelectorAll("[data-badge]")) {
    const count = counts[badge.dataset.badge] ?? "";
    badge.querySelector("[data-count]").textContent = count;
    badge.hidden = !count;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  showBadges();
  setInterval(showBadges, REFRESHED_MS);
});
document.addEventListener("visibilitychange", showBadges);
