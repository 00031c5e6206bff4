// The button of the theme, details opened for print, and what the other scripts share.
"use strict";
const dataaudit = (() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  function changed() {
    const button = document.getElementById("theme");
    button.textContent = isDark() ? "Light theme" : "Dark theme";
    for (const listener of listeners) listener();
  }

  // Data lie in the page as base64 of deflated text: 100,000 shards would not fit otherwise.
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).text();
  }

  root.classList.remove("no-js");
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    changed();
  });
  system.addEventListener("change", changed);

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });
  changed();
  return { isDark, onTheme: (listener) => listeners.push(listener), unpack };
})();
