// Runs before the page is painted, so that it never shows in the wrong colours first.
(function () {
  "use strict";
  try {
    const chosen = localStorage.getItem("sluice.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be switched off; then the system's preference holds.
  }
})();
