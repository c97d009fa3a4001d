// Live news, the progress of a job, the switch of colours, and what is said when the session is over. Everything else works without.
(function () {
  "use strict";
  var root = document.documentElement;

  function said(words) {
    var line = document.getElementById("signal");
    if (!line) return;
    line.hidden = false;
    line.textContent = words;
  }

  function isDark() {
    var chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  var button = document.getElementById("theme");
  if (button) {
    button.setAttribute("aria-pressed", String(isDark()));
    button.addEventListener("click", function () {
      root.dataset.theme = isDark() ? "light" : "dark";
      button.setAttribute("aria-pressed", String(isDark()));
      try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* only for this page */ }
    });
  }

  // A link is used by pressing its button; where scripts run that happens at once.
  var enter = document.getElementById("enter");
  if (enter) { enter.submit(); return; }

  document.body.addEventListener("htmx:responseError", function (event) {
    var status = event.detail.xhr.status;
    said(status === 401 ? "You are not signed in any more. Open the console again." : "The console could not answer (" + status + "). Load the page again.");
  });
  document.body.addEventListener("htmx:sendError", function () {
    said("The console does not answer. Was it ended?");
  });

  var job = document.querySelector("[data-job]");
  if (job) {
    var work = new EventSource("/job/" + job.dataset.job + "/events");
    work.onmessage = function (event) {
      var told = JSON.parse(event.data);
      if (told.outcome !== "running") {
        work.close();
        htmx.trigger(document.body, "over");
        return;
      }
      var words = document.getElementById("words"), bar = document.getElementById("progress");
      if (words && told.words && words.textContent !== told.words) words.textContent = told.words;
      if (bar && told.percent) bar.value = told.percent;
    };
    return;
  }

  if (document.querySelector("header nav")) {
    // What the page shows may be older than the first event.
    var shown = document.querySelector("[data-seq]");
    var seq = shown ? Number(shown.dataset.seq) : null, news = new EventSource("/events");
    news.onmessage = function (event) {
      var now = JSON.parse(event.data).seq;
      if (seq !== null && now !== seq) htmx.trigger(document.body, "news");
      seq = now;
    };
    news.onerror = function () {
      if (news.readyState === EventSource.CLOSED) said("You are not signed in any more, or the console was restarted. Open it again.");
      else said("The connection to the console is lost; trying again.");
    };
    news.onopen = function () {
      var line = document.getElementById("signal");
      if (line) line.hidden = true;
    };
    window.addEventListener("pagehide", function () { news.close(); });
  }
})();
