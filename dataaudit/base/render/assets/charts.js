// Draws the charts, and draws them anew in the colours of the other theme.
"use strict";
(() => {
  const DARK = {
    "#2f6db3": "#6aa5e3", "#c4570c": "#f0954d", "#8b95a1": "#7f8a96", "#1b7f79": "#5cc4bb",
    "#1b1f24": "#e7eaee", "#59636e": "#a3adb8", "#e3e7eb": "#2c333b", "#ffffff": "#1b1f25",
  };

  // Bokeh styles its parts by style elements; the policy of the page lets in those that bear its nonce.
  const nonce = document.querySelector("style").nonce;
  const create = Document.prototype.createElement;
  Document.prototype.createElement = function (name, options) {
    const element = create.call(this, name, options);
    if (String(name).toLowerCase() === "style") element.nonce = nonce;
    return element;
  };

  // Only what stands under a name of a colour is a colour: a source may be named "#ffffff".
  function recoloured(value, isColour) {
    if (typeof value === "string") return isColour && value in DARK ? DARK[value] : value;
    if (Array.isArray(value)) {
      if (value.length === 2 && typeof value[0] === "string" && value[0].endsWith("_color")) {
        return [value[0], recoloured(value[1], true)];
      }
      return value.map((one) => recoloured(one, isColour));
    }
    if (value === null || typeof value !== "object") return value;
    const entries = Object.entries(value);
    return Object.fromEntries(
      entries.map(([key, one]) => key === "palette" ? [key, one.map((shade) => DARK[shade.slice(0, 7)] + shade.slice(7))] : [key, recoloured(one, isColour ? key !== "field" : key.endsWith("_color"))]),
    );
  }

  const views = new Map();
  let queue = Promise.resolve();
  function draw(items) {
    queue = queue.then(async () => {
      const dark = dataaudit.isDark();
      document.documentElement.classList.toggle("drawn-dark", dark);
      for (const item of items) {
        const place = document.getElementById(item.target_id);
        views.get(item.target_id)?.clear();
        place.replaceChildren();
        views.set(item.target_id, await Bokeh.embed.embed_item(dark ? recoloured(item, false) : item));
      }
      document.documentElement.dataset.charts = dark ? "dark" : "light";
    });
  }

  async function start() {
    const items = JSON.parse(document.getElementById("charts").textContent);
    if (!items.length) return;
    const library = document.createElement("script");
    library.textContent = await dataaudit.unpack(document.getElementById("bokeh").textContent);
    const log = console.log;
    console.log = () => {}; // Bokeh greets; the console is for what is wrong
    document.head.append(library);
    Bokeh.set_log_level("error");
    console.log = log;
    draw(items);
    dataaudit.onTheme(() => draw(items));
  }
  start();
})();
