// The colours are those that were chosen in the console, or the system's.
const dark = matchMedia("(prefers-color-scheme: dark)");

function colour() {
  const chosen = JSON.parse(localStorage.getItem("adminTheme") ?? '"auto"');
  document.documentElement.classList.toggle("dark-mode", chosen === "dark" || (chosen === "auto" && dark.matches));
}

colour();
dark.addEventListener("change", colour);
addEventListener("storage", colour);

const place = document.getElementById("reference");
window.SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  presets: [window.SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
});
