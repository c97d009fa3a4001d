// Before anything is drawn: the colours that were chosen on this device, if any.
(function () {
  "use strict";
  try {
    var chosen = localStorage.getItem("theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch (error) { /* no storage: the colours of the system */ }
})();
