// The sections about messages: found by id or key, one with its track and trace, dead letters.

import { get } from "./api.js";
import { ago, badge, bytes, card, count, h, link, table, time } from "./dom.js";
import { messageTable, topicNames } from "./views.js";

const TRACKS = {
  CONSUMED: ["consumed", "good"], NOT_CONSUME_YET: ["not consumed yet", "warn"], NOT_ONLINE: ["no member", "bad"],
  CONSUME_BROADCASTING: ["broadcast", ""], CONSUMED_BUT_FILTERED: ["filtered out", ""],
};
const STEPS = { Pub: "Sent", SubBefore: "Handed to", SubAfter: "Finished by", EndTransaction: "Transaction of",
  Recall: "Recalled by" };

export const messages = {
  title: "Messages",
  fixed(app) {
    const topic = h("input", { name: "topic", placeholder: "topic", "aria-label": "Topic", list: "topic-names",
      value: app.query.topic ?? "" });
    const text = h("input", { name: "text", required: true, placeholder: "message id, or key (/)", data: { search: "1" },
      "aria-label": "Message id or key", value: app.query.text ?? "", class: "long" });
    const by = h("select", { "aria-label": "Find by" }, h("option", { value: "id" }, "by id"),
      h("option", { value: "key", selected: app.query.by === "key" }, "by key"));
    const need = () => { topic.required = by.value === "key"; };
    by.addEventListener("change", need);
    need();
    return h("form", { class: "bar", onsubmit: (event) => {
      event.preventDefault();
      const id = text.value.trim();
      if (by.value === "id") app.go("message", { topic: topic.value.trim(), id });
      else app.go("messages", { topic: topic.value.trim(), by: "key", text: id });
    } }, by, topic, text, h("button", { type: "submit" }, "Find"), topicNames());
  },
  async load(app, signal) {
    if (app.query.by !== "key" || !app.query.text) {
      return h("p", { class: "empty" }, "Find a message by its id, or all messages of a topic that have a key. ",
        "The page of a topic shows its newest messages.");
    }
    const rows = await get("messages", { topic: app.query.topic ?? "", key: app.query.text }, signal);
    return card(`${count(rows.length)} with the key ${app.query.text}`, messageTable(rows));
  },
  every: 0,
};

export const message = {
  title: "Message",
  parent: "messages",
  async load(app, signal) {
    const tree = await get("message", { topic: app.query.topic ?? "", id: app.query.id ?? "" }, signal);
    const facts = [
      ["Topic", h("a", { href: link("topic", { topic: tree.topic }) }, tree.topic)],
      ["Queue", `${tree.broker} ${tree.queue}, offset ${count(tree.offset)}`],
      ["Id", h("span", { class: "mono" }, tree.id)], ["Offset id", h("span", { class: "mono" }, tree.offset_id)],
      ["Keys", tree.keys.join(" ") || "–"], ["Tag", tree.tags ?? "–"],
      ["Born", `${time(tree.born_ms)} at ${tree.born_host}`], ["Stored", `${time(tree.stored_ms)} at ${tree.store_host}`],
      ["Deliveries before", count(tree.retries)],
    ];
    return [
      card(null, h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))),
      h("div", { class: "columns" },
        card("Track", tree.track_error ? h("p", { class: "problem inline" }, tree.track_error) : table([
          { title: "Group", cell: (row) => h("a", { href: link("group", { group: row.group }) }, row.group) },
          { title: "State", cell: (row) => badge(...(TRACKS[row.state] ?? [row.state, ""])) },
        ], tree.track ?? [], { empty: "No group consumes this topic.", caption: "Track" })),
        card("Trace", tree.trace_error ? h("p", { class: "problem inline" }, tree.trace_error) : trace(tree.trace ?? []))),
      card(`Body, ${bytes(tree.size)}`, body(tree)),
      card("Properties", table([
        { title: "Name", cell: ([name]) => h("span", { class: "mono" }, name) },
        { title: "Value", wide: true, cell: ([, value]) => h("span", { class: "mono" }, value) },
      ], Object.entries(tree.properties), { empty: "No properties.", caption: "Properties" })),
    ];
  },
  every: 0,
};

function trace(steps) {
  if (!steps.length) {
    return h("p", { class: "empty" }, "No client has traced it. Producers and consumers do with trace=True.");
  }
  return h("ol", { class: "trace" }, steps.map((step) => h("li", { class: step.result === "success"
    || step.result === "COMMIT_MESSAGE" || step.kind === "SubBefore" ? "good" : "bad" },
  h("b", {}, `${STEPS[step.kind] ?? step.kind} ${step.group}`),
  h("span", { class: "quiet" }, [time(step.time_ms), step.cost_ms === null ? "" : `${step.cost_ms} ms`, step.result,
    step.kind === "SubBefore" && step.retries ? `delivery ${step.retries + 1}` : "", step.client]
    .filter(Boolean).join(" · ")))));
}

function body(tree) {
  const cut = tree.cut ? h("p", { class: "quiet" }, "Only the beginning is shown.") : null;
  if (tree.binary !== undefined) return [h("pre", { tabindex: 0 }, dump(atob(tree.binary))), cut];
  const pre = h("pre", { tabindex: 0 }, tree.text || "(empty)");
  let pretty = null;
  try {
    const parsed = JSON.parse(tree.text);
    if (parsed && typeof parsed === "object") pretty = JSON.stringify(parsed, null, 2);
  } catch { /* It is not JSON. */ }
  const tools = [
    // Browsers have a clipboard only for local pages and TLS.
    navigator.clipboard ? h("button", { type: "button", onclick: () => navigator.clipboard.writeText(tree.text) }, "Copy")
      : null,
    pretty && pretty !== tree.text ? h("button", { type: "button", "aria-pressed": "false", onclick: (event) => {
      const on = event.target.getAttribute("aria-pressed") !== "true";
      event.target.setAttribute("aria-pressed", String(on));
      pre.textContent = on ? pretty : tree.text;
    } }, "Format JSON") : null,
  ];
  return [h("div", { class: "tools" }, tools), pre, cut];
}

// Sixteen bytes a line: place, hexadecimal, text.
function dump(text) {
  const lines = [];
  for (let at = 0; at < text.length; at += 16) {
    const part = [...text.slice(at, at + 16)].map((each) => each.charCodeAt(0));
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const shown = part.map((each) => each > 31 && each < 127 ? String.fromCharCode(each) : ".").join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${shown}`);
  }
  return lines.join("\n");
}

export const deadLetters = {
  title: (app) => app.query.group ? `Dead letters of ${app.query.group}` : "Dead letters",
  async load(app, signal) {
    if (!app.query.group) {
      const rows = await get("dead-letter-groups", {}, signal);
      return card(null, table([
        { title: "Group", wide: true, cell: (row) => h("a", { href: link("dead-letters", { group: row.group }),
          data: { key: `group ${row.group}` } }, row.group) },
        { title: "Dead letters", right: true, cell: (row) => badge(count(row.messages), row.messages ? "bad" : "") },
        { title: "Last one", cell: (row) => ago(row.updated_ms) },
      ], rows, { empty: "No group has given a message up.", caption: "Groups with dead letters" }));
    }
    const group = app.query.group;
    const rows = await get("newest", { topic: `%DLQ%${group}`, count: 100 }, signal);
    const ids = (chosen) => rows.filter((row) => chosen.has(row.offset_id)).map((row) => row.offset_id);
    const chosen = app.chosen;
    const button = h("button", { type: "button", data: { key: "resend" }, disabled: !ids(chosen).length, onclick: async () => {
      const wanted = ids(chosen);
      if (!confirm(`Give ${wanted.length} messages to ${group} again, with all tries?`)) return;
      const answer = await app.write("resend", { group, ids: wanted }, null);
      if (!answer) return;
      const failed = Object.values(answer.failed);
      app.say(`Sent ${answer.sent} again.${failed.length ? ` ${failed.length} failed: ${failed[0]}` : ""}`, failed.length > 0);
      chosen.clear();
      app.refresh();
    } }, `Send again (${ids(chosen).length})`);
    const note = () => {
      button.textContent = `Send again (${ids(chosen).length})`;
      button.disabled = !ids(chosen).length;
    };
    const box = { title: "", cell: (row) => h("input", { type: "checkbox", "aria-label": `Choose ${row.id}`,
      data: { key: `choose ${row.offset_id}` }, checked: chosen.has(row.offset_id), onchange: (event) => {
        if (event.target.checked) chosen.add(row.offset_id);
        else chosen.delete(row.offset_id);
        note();
      } }) };
    const all = h("button", { type: "button", data: { key: "all" }, onclick: () => {
      const every = rows.every((row) => chosen.has(row.offset_id));
      rows.forEach((row) => every ? chosen.delete(row.offset_id) : chosen.add(row.offset_id));
      app.refresh();
    } }, "Choose all");
    return card(null,
      h("p", { class: "quiet" }, "The newest 100 are shown. Those that are sent again stay here, too. ",
        h("a", { href: link("dead-letters"), data: { key: "all groups" } }, "All groups"), " · ",
        h("a", { href: link("group", { group }), data: { key: "the group" } }, "The group")),
      app.mayWrite && rows.length ? h("div", { class: "tools" }, all, button) : null,
      messageTable(rows, app.mayWrite ? box : null));
  },
};

