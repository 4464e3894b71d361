// Keeps a page current: asks for its main part again and puts it in place when it has changed. A hidden page rests.
(() => {
  "use strict";
  const state = document.getElementById("live");
  let version = document.querySelector("main").dataset.version;
  let every = Number(document.body.dataset.every) || 5000;
  let timer = 0;
  if (!version || !state) return;

  const say = (text, bad) => {
    state.textContent = text;
    state.className = bad ? "bad" : "";
  };

  // What a reader is doing must not be taken away.
  const busy = () => {
    const main = document.querySelector("main");
    const focus = document.activeElement;
    const writes = focus && main.contains(focus) && /^(INPUT|SELECT|TEXTAREA)$/.test(focus.tagName);
    const changed = [...main.querySelectorAll("input, textarea")].some(
      (one) => one.value !== one.defaultValue || one.checked !== one.defaultChecked);
    const selection = document.getSelection();
    return writes || changed || (selection && !selection.isCollapsed && main.contains(selection.anchorNode));
  };

  const replace = (text) => {
    const main = document.querySelector("main");
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    if (!fresh) return;
    const open = new Set([...main.querySelectorAll("details[open][id]")].map((one) => one.id));
    const scrolled = [...main.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const focus = main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    fresh.querySelectorAll("details[id]").forEach((one) => { if (open.has(one.id)) one.open = true; });
    main.replaceWith(fresh);
    fresh.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    if (focus) {
      const again = [...fresh.querySelectorAll("a")].find((one) => one.getAttribute("href") === focus);
      if (again) again.focus({ preventScroll: true });
    }
  };

  const look = async () => {
    if (document.hidden || busy()) return;
    try {
      const answer = await fetch(location.href, {
        headers: { "If-None-Match": version, "Sluice-Part": "main" }, cache: "no-store", redirect: "error",
      });
      every = Number(answer.headers.get("Sluice-Every")) || every;
      if (answer.status === 304) {
        say("Live");
      } else if (answer.ok) {
        const text = await answer.text();
        version = answer.headers.get("ETag");
        if (!busy()) replace(text);
        say("Live");
      } else {
        say("Not current: the last answer was " + answer.status + ". Reload the page.", true);
      }
    } catch {
      say("Not current: no answer.", true);
    }
  };

  const next = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => { await look(); next(); }, every);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(timer); } else { look().then(next); }
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button || !navigator.clipboard) return;
    navigator.clipboard.writeText(button.dataset.copy).then(() => {
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  });
  say("Live");
  next();
})();
