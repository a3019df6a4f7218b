// Counts [data-countdown] seconds down, from when the page, or a part of it that was refreshed, first shows them. The
// server wrote the same words: without this script they stay as they were when they were read.
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const ends = new WeakMap();

function words(seconds) {
  if (seconds < 1) return "a moment";
  if (seconds < 2 * MINUTE) return `${Math.ceil(seconds)} s`;
  if (seconds < 2 * HOUR) return `${Math.round(seconds / MINUTE)} min`;
  if (seconds < 2 * DAY) return `${Math.round(seconds / HOUR)} h`;
  return `${Math.round(seconds / DAY)} days`;
}

function tick() {
  for (const place of document.querySelectorAll("[data-countdown]")) {
    const known = ends.get(place);
    const isNew = known?.said !== place.dataset.countdown;
    const at = isNew ? performance.now() + 1000 * Number(place.dataset.countdown) : known.at;
    if (isNew) ends.set(place, { said: place.dataset.countdown, at });
    place.textContent = words(Math.max(0, at - performance.now()) / 1000);
  }
}

tick();
setInterval(tick, 1000);
