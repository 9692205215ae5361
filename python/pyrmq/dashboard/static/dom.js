// Elements, texts and figures. Everything from a server becomes a text node or an attribute, never markup.

export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value" || name === "checked") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const numbers = new Intl.NumberFormat("en");

export function count(value) {
  return value === null || value === undefined ? "–" : numbers.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return numbers.format(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value >= 10 || at === 0 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let left = Math.max(0, Math.round(seconds));
  const texts = [];
  for (const [unit, size] of parts) {
    const whole = Math.floor(left / size);
    if (whole) texts.push(`${whole} ${unit}`);
    left -= whole * size;
  }
  return texts.slice(0, 2).join(" ") || "0 s";
}

export function time(ms) {
  if (!ms || ms <= 0) return "–";
  const date = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return date.toDateString() === new Date().toDateString() ? clock : `${day} ${clock}`;
}

// How long ago; the exact time is its title.
export function ago(ms) {
  if (!ms || ms <= 0) return h("span", { class: "quiet" }, "never");
  const seconds = (Date.now() - ms) / 1000;
  const text = seconds < 2 ? "now" : `${span(seconds).split(" ").slice(0, 2).join(" ")} ago`;
  return h("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toString() }, text);
}

export function link(route, query = {}) {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
  return `#/${route}${text ? `?${text}` : ""}`;
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, text);
}

export function tile(label, value, note = "", kind = "") {
  return h("div", { class: `tile ${kind}` },
    h("span", { class: "label" }, label),
    h("span", { class: "figure" }, value),
    note ? h("span", { class: "note" }, note) : null);
}

export function meter(part, text, kind = "") {
  const percent = Math.max(0, Math.min(100, Math.round(part * 100)));
  return h("span", { class: `meter ${kind}` },
    h("progress", { max: 100, value: percent, "aria-label": text }), h("span", {}, text));
}

// A table. Columns: {title, cell(row), right, wide}; on a phone each row is a card with the titles as labels.
export function table(columns, rows, { empty = "Nothing here.", caption = "", key = null } = {}) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = columns.map((column) =>
    h("th", { scope: "col", class: column.right ? "right" : null }, column.title));
  const body = rows.map((row) => h("tr", { data: key ? { row: key(row) } : {} },
    columns.map((column) => h("td", {
      class: [column.right ? "right" : "", column.wide ? "wide" : ""].join(" ").trim() || null,
      data: { label: column.title },
    }, column.cell(row)))));
  return h("div", { class: "table" }, h("table", {},
    caption ? h("caption", { class: "hidden" }, caption) : null,
    h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", {}, title) : null, ...children);
}

export function pages(total, page, size, go) {
  const last = Math.max(0, Math.ceil(total / size) - 1);
  if (!last) return null;
  const button = (text, to, label) =>
    h("button", { type: "button", disabled: to < 0 || to > last, onclick: () => go(to), "aria-label": label,
      data: { key: label } }, text);
  return h("div", { class: "pages" }, button("‹", page - 1, "Previous page"),
    h("span", {}, `${numbers.format(page * size + 1)}–${numbers.format(Math.min(total, (page + 1) * size))} of `
      + numbers.format(total)),
    button("›", page + 1, "Next page"));
}
