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
  const items = new Map();
  const waiting = new Set();
  const seen = new Set();
  let drawing = false;

  // What is in sight is drawn first, then the rest, so that printing finds all of it.
  const watcher = new IntersectionObserver((entries) => {
    for (const one of entries) {
      if (one.isIntersecting) seen.add(one.target.id);
      else seen.delete(one.target.id);
    }
  }, { rootMargin: "200px" });

  async function drawOne(id) {
    const place = document.getElementById(id);
    if (place === null) return;
    const dark = dataaudit.isDark();
    const item = items.get(id);
    const made = document.createElement("div");
    const before = place.firstElementChild;
    made.className = before ? "drawn behind" : "drawn"; // the old picture stays until the new one stands
    place.append(made);
    const view = await Bokeh.embed.embed_item(dark ? recoloured(item, false) : item, made);
    views.get(id)?.clear();
    before?.remove();
    made.className = "drawn";
    views.set(id, view);
  }

  async function draw(wanted) {
    for (const id of wanted) waiting.add(id);
    document.documentElement.classList.toggle("drawn-dark", dataaudit.isDark());
    if (drawing) return;
    drawing = true;
    while (waiting.size) {
      const id = [...waiting].find((one) => seen.has(one)) ?? waiting.values().next().value;
      waiting.delete(id);
      await drawOne(id);
      await new Promise((resolve) => setTimeout(resolve)); // the page answers in between
    }
    drawing = false;
    document.documentElement.dataset.charts = dataaudit.isDark() ? "dark" : "light";
  }

  // The parts of a chart lie in shadow roots of Bokeh's elements: canvases, and the words of legends.
  function leaves(node, found = []) {
    for (const part of [...(node.shadowRoot ? node.shadowRoot.children : []), ...node.children]) {
      if (!part.children.length && !part.shadowRoot && part.getBoundingClientRect().width) found.push(part);
      leaves(part, found);
    }
    return found;
  }

  // Bokeh draws anew, later, when the paper gives a chart another width; so a copy of what is drawn is printed.
  function copied(place) {
    const outer = place.getBoundingClientRect();
    const all = leaves(place);
    const parts = all.filter((part) => part.tagName === "CANVAS" && part.width);
    if (!parts.length || !outer.width) return;
    const ratio = parts[0].width / parts[0].getBoundingClientRect().width;
    const copy = document.createElement("canvas");
    copy.className = "printed";
    [copy.width, copy.height] = [outer.width * ratio, outer.height * ratio];
    const context = copy.getContext("2d");
    if (dataaudit.isDark()) context.filter = "invert(1) hue-rotate(180deg)"; // paper is white
    for (const part of parts) {
      const box = part.getBoundingClientRect();
      context.drawImage(part, (box.left - outer.left) * ratio, (box.top - outer.top) * ratio, box.width * ratio, box.height * ratio);
    }
    context.scale(ratio, ratio);
    for (const part of all.filter((part) => part.tagName !== "CANVAS" && part.textContent.trim())) {
      const box = part.getBoundingClientRect();
      const style = getComputedStyle(part);
      [context.font, context.fillStyle, context.textBaseline] = [style.font, style.color, "middle"];
      context.fillText(part.textContent, box.left - outer.left, (box.top + box.bottom) / 2 - outer.top);
    }
    place.after(copy);
  }

  function take(given) {
    const news = given.filter((item) => JSON.stringify(items.get(item.target_id)) !== JSON.stringify(item));
    for (const item of news) {
      items.set(item.target_id, item);
      const place = document.getElementById(item.target_id);
      if (place !== null) watcher.observe(place);
    }
    const box = { top: -200, bottom: innerHeight + 200 };
    for (const item of news) {
      const at = document.getElementById(item.target_id)?.getBoundingClientRect();
      if (at && at.bottom > box.top && at.top < box.bottom) seen.add(item.target_id);
    }
    draw(news.map((item) => item.target_id));
  }

  async function start() {
    const first = JSON.parse(document.getElementById("charts").textContent);
    const packed = document.getElementById("bokeh");
    if (packed === null) return;
    const library = document.createElement("script");
    library.textContent = await dataaudit.unpack(packed.textContent);
    const log = console.log;
    console.log = () => {}; // Bokeh greets; the console is for what is wrong
    document.head.append(library);
    Bokeh.set_log_level("error");
    console.log = log;
    take(first);
    dataaudit.onTheme(() => draw(items.keys()));
    addEventListener("beforeprint", () => document.querySelectorAll(".chart").forEach(copied));
    addEventListener("afterprint", () => document.querySelectorAll("canvas.printed").forEach((one) => one.remove()));
  }
  const ready = start();
  dataaudit.redraw = (news) => ready.then(() => take(news));
})();
