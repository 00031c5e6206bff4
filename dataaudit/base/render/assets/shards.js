// The table of all shards: filtered, sorted, and only the rows in sight are in the page.
"use strict";
(() => {
  const WIDE = 32;
  const LINE = 22;
  const NARROW = matchMedia("(max-width: 30rem)");
  const PRINTED = 100;
  const NOTHING = "-";
  const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

  const grouped = (value) => value.toLocaleString("en-US");

  function size(bytes) {
    let unit = 0;
    let value = bytes;
    while (value >= 999.95 && unit < UNITS.length - 1) [value, unit] = [value / 1000, unit + 1];
    const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
    return unit === 0 ? `${bytes} B` : `${value.toLocaleString("en-US", digits)} ${UNITS[unit]}`;
  }

  function percent(value) {
    const shown = value * 100;
    if (value === 0 || value === 1) return `${shown}\u00a0%`;
    if (shown >= 99.95) return `${Math.min(shown, 99.99).toFixed(2)}\u00a0%`;
    if (shown >= 10) return `${shown.toFixed(1)}\u00a0%`;
    if (shown >= 0.1) return `${shown.toFixed(2)}\u00a0%`;
    return `${shown >= 0.001 ? Number(shown.toPrecision(2)) : shown.toExponential(0)}\u00a0%`;
  }

  function number(value) {
    return value === 0 || Math.abs(value) >= 0.001 ? value.toFixed(3) : value.toExponential(1);
  }

  function few(value, hidden) {
    if (value < 0) return hidden[-1 - value];
    if (value >= 100) return grouped(Math.round(value));
    if (value === 0) return "0";
    return value.toFixed(value >= 10 ? 1 : value >= 1 ? 2 : 3);
  }

  const FORMATS = { count: grouped, size, share: percent, number, few };

  function shown(column, row, data) {
    const value = column.values[row];
    return value === null ? NOTHING : FORMATS[column.kind](value, data.hidden);
  }

  // Rows in order of a key; those without a value come last, ties keep the manifest's order.
  function sorted(rows, key, descending) {
    const sign = descending ? -1 : 1;
    return rows.sort((left, right) => {
      const [one, other] = [key(left), key(right)];
      if (one === null || other === null) return (one === null) - (other === null) || left - right;
      if (one === other) return left - right;
      return one < other ? -sign : sign;
    });
  }

  async function load() {
    const parts = JSON.parse(document.getElementById("shard-data").textContent);
    const part = async (name) => JSON.parse(await dataaudit.unpack(parts[name]));
    const data = await part("head");
    for (const name of ["uri", "split", "status", "shard", "odd"]) data[name] = await part(name);
    for (const column of data.columns) column.values = await part(column.key);
    return data;
  }

  async function start() {
    const table = document.getElementById("all-shards");
    if (table === null) return;
    const data = await load();
    const scroll = table.parentElement;
    const body = table.tBodies[0];
    const ordinal = (row) => (data.shard ? data.shard[row] : row);
    const name = (row) => `${data.splits[data.split[row]]}/${data.uri[row]}`;
    const odd = (row) => data.odd[ordinal(row)];
    const heads = [...table.tHead.rows[0].cells];
    const keys = [
      ordinal, name, (row) => data.statuses[data.status[row]],
      ...data.columns.map((column) => (row) => column.values[row]),
      (row) => (odd(row) ? odd(row)[0] + odd(row)[1] : null),
    ];
    const labels = heads.map((head) => head.textContent);
    const CARD = LINE * (heads.length + 3) + 17; // three more lines of name and reason; padding and border
    const height = () => (NARROW.matches && !state.printing ? CARD : WIDE);
    const inputs = Object.fromEntries(
      ["text", "split", "status", "odd"].map((id) => [id, document.getElementById(`filter-${id}`)]),
    );
    const state = { rows: [], sort: 0, descending: false, printing: false, drawn: "" };

    function cell(kind, text) {
      const made = document.createElement("td");
      made.className = kind;
      made.textContent = text;
      return made;
    }

    function rowElement(row, index) {
      const made = document.createElement("tr");
      const why = odd(row);
      made.setAttribute("aria-rowindex", index + 2);
      if (why) made.className = `row-${why[0]}`;
      const label = cell("name", "");
      label.title = name(row);
      if (why && why[0] !== "quiet") {
        const mark = document.createElement("span");
        mark.className = "mark";
        mark.textContent = why[0] === "bad" ? "\u2715" : "!";
        mark.setAttribute("aria-hidden", "true");
        label.append(mark);
      }
      const bdi = document.createElement("bdi");
      bdi.textContent = name(row);
      label.append(bdi);
      made.append(cell("number", grouped(ordinal(row))), label, cell("word", data.statuses[data.status[row]]));
      for (const column of data.columns) made.append(cell("number", shown(column, row, data)));
      made.append(cell("why", why ? why[1] : ""));
      [...made.cells].forEach((one, at) => {
        one.dataset.label = labels[at];
        one.setAttribute("role", "cell");
      });
      made.setAttribute("role", "row");
      return made;
    }

    function space(rows) {
      const made = document.createElement("tr");
      const filler = document.createElement("td");
      made.className = "space";
      made.setAttribute("aria-hidden", "true");
      filler.colSpan = heads.length;
      filler.style.height = `${rows * height()}px`;
      made.append(filler);
      return made;
    }

    function paint(anew) {
      const visible = Math.ceil(scroll.clientHeight / height()) + 1;
      const top = Math.max(0, Math.floor(scroll.scrollTop / height()) - 8);
      const from = state.printing ? 0 : Math.min(top, Math.max(0, state.rows.length - visible));
      const to = Math.min(state.rows.length, from + (state.printing ? PRINTED : visible + 16));
      const drawn = `${from} ${to}`;
      if (!anew && drawn === state.drawn) return;
      state.drawn = drawn;
      const rows = state.rows.slice(from, to).map((row, index) => rowElement(row, from + index));
      const rest = state.printing ? 0 : state.rows.length - to;
      body.replaceChildren(...(from ? [space(from)] : []), ...rows, ...(rest ? [space(rest)] : []));
    }

    function refresh() {
      const wanted = inputs.text.value.trim().toLowerCase();
      const rows = [];
      for (let row = 0; row < data.number; row += 1) {
        const why = odd(row);
        if (inputs.odd.checked && (!why || why[0] === "quiet")) continue;
        if (inputs.split.value && data.split[row] !== Number(inputs.split.value)) continue;
        if (inputs.status.value && data.status[row] !== Number(inputs.status.value)) continue;
        if (wanted && !`${name(row)} ${why ? why[1] : ""}`.toLowerCase().includes(wanted)) continue;
        rows.push(row);
      }
      state.rows = state.sort || state.descending ? sorted(rows, keys[state.sort], state.descending) : rows;
      table.setAttribute("aria-rowcount", rows.length + 1);
      document.getElementById("filter-count").textContent = `${grouped(rows.length)} of ${grouped(data.number)} shards`;
      scroll.scrollTop = 0;
      paint(true);
    }

    function sortBy(index) {
      const numeric = index > 2 && index < heads.length - 1;
      state.descending = state.sort === index ? !state.descending : numeric;
      state.sort = index;
      heads.forEach((head, at) => {
        if (at === index) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      refresh();
    }

    function fill(select, names) {
      names.forEach((text, index) => select.add(new Option(text, index)));
    }

    heads.forEach((head, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => sortBy(index));
      head.replaceChildren(button);
    });
    fill(inputs.split, data.splits);
    fill(inputs.status, data.statuses);
    let waiting = 0;
    for (const input of Object.values(inputs)) {
      input.addEventListener("input", () => {
        clearTimeout(waiting);
        waiting = setTimeout(refresh, 80);
      });
    }
    scroll.addEventListener("scroll", () => requestAnimationFrame(() => paint(false)));
    addEventListener("resize", () => paint(false));
    NARROW.addEventListener("change", () => paint(true));
    addEventListener("beforeprint", () => {
      state.printing = true;
      paint(true);
    });
    addEventListener("afterprint", () => {
      state.printing = false;
      paint(true);
    });
    refresh();
    document.documentElement.dataset.shards = "ready";
  }
  start();
})();
