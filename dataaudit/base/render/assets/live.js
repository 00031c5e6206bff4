// Keeps an open page of a run up to date: sections that changed are replaced, incidents get a button.
"use strict";
(() => {
  const main = document.getElementById("main");
  const link = document.getElementById("link");
  const newest = document.getElementById("newest");
  const address = main.dataset.live;
  let stream = null;

  function parsed(html) {
    const template = document.createElement("template"); // what is in it neither runs nor loads
    template.innerHTML = html;
    return template.content;
  }

  // A section keeps what its reader opened, and its pictures until the new ones are drawn.
  function replaced(old, html) {
    const made = parsed(html).firstElementChild;
    if (old === null) return made;
    const open = new Set([...old.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    for (const one of made.querySelectorAll("summary")) if (open.has(one.textContent)) one.parentElement.open = true;
    for (const place of made.querySelectorAll(".chart")) {
      const before = old.querySelector(`[id="${CSS.escape(place.id)}"]`);
      if (before === null) continue;
      before.setAttribute("aria-label", place.getAttribute("aria-label"));
      place.replaceWith(before);
    }
    old.replaceWith(made);
    return made;
  }

  function entry(section) {
    const link = document.createElement("a");
    link.href = `#${section.id}`;
    const dot = document.createElement("span");
    const pill = section.querySelector("h2 .pill");
    dot.className = `dot ${pill ? pill.classList[1] || "" : ""}`;
    dot.setAttribute("aria-hidden", "true");
    link.append(dot, section.querySelector("h2").firstChild.textContent);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }

  function take(news) {
    if (news.top) document.getElementById("top").replaceChildren(parsed(news.top));
    const charts = [];
    for (const [id, html, items] of news.sections) {
      const made = replaced(document.getElementById(id), html);
      if (!made.isConnected) main.append(made);
      charts.push(...items);
    }
    const sections = [...main.querySelectorAll(":scope > section")];
    for (const one of sections) if (!news.order.includes(one.id)) one.remove();
    news.order.forEach((id) => main.append(document.getElementById(id)));
    document.querySelector("nav ol").replaceChildren(...news.order.map((id) => entry(document.getElementById(id))));
    dataaudit.redraw(charts);
    buttons();
    main.dataset.taken = Number(main.dataset.taken || 0) + 1;
  }

  function field(form, name, label, type, autocomplete) {
    const shown = document.createElement("label");
    const input = document.createElement("input");
    Object.assign(input, { type, name, required: true, autocomplete });
    shown.append(label, input);
    form.append(shown);
    return input;
  }

  function asked(item) {
    const form = document.createElement("form");
    form.className = "ack";
    const who = field(form, "who", "Who", "text", "name");
    const note = field(form, "note", "What is done about it", "text", "off");
    const token = field(form, "token", "Token, as the terminal shows it", "password", "off");
    const send = document.createElement("button");
    send.textContent = "Acknowledge";
    const answer = document.createElement("output");
    form.append(send, answer);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      send.disabled = true;
      const body = JSON.stringify({ incident: item.dataset.incident, who: who.value, note: note.value });
      const headers = { "Content-Type": "application/json", "X-Token": token.value };
      try {
        const response = await fetch("ack", { method: "POST", headers, body });
        answer.textContent = response.ok ? "acknowledged" : (await response.json()).error;
        send.disabled = response.ok;
      } catch {
        answer.textContent = "The server does not answer.";
        send.disabled = false;
      }
    });
    return form;
  }

  function buttons() {
    for (const item of document.querySelectorAll("[data-incident]:not(:has(.ack))")) {
      const open = document.createElement("button");
      open.type = "button";
      open.className = "ack";
      open.textContent = "Acknowledge";
      open.addEventListener("click", () => {
        const form = asked(item);
        open.replaceWith(form);
        form.querySelector("input").focus();
      });
      item.append(open);
    }
  }

  function connect() {
    stream?.close();
    link.textContent = "connecting";
    stream = new EventSource(`${address}?newest=${newest.value}`);
    stream.addEventListener("open", () => {
      link.textContent = "live";
    });
    stream.addEventListener("error", () => {
      link.textContent = "not connected; trying again";
    });
    stream.addEventListener("news", (event) => {
      if (document.querySelector("form.ack:focus-within")) return; // a form that is being filled in stays
      take(JSON.parse(event.data));
    });
  }

  newest.addEventListener("change", connect);
  buttons();
  connect();
})();
