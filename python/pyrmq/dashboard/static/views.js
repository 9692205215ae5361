// The sections about brokers, topics and groups. A view has parts that stay (forms) and `load`, which is called
// again and again and gives what is shown below them.

import { get } from "./api.js";
import { chart } from "./chart.js";
import { ago, badge, bytes, card, count, h, link, meter, pages, rate, span, table, tile } from "./dom.js";

const PERMISSIONS = { 0: "none", 2: "write", 4: "read", 6: "read, write" };

// A group that commits every few seconds always has some lag: only what is much, or old, gets a colour.
function lagKind(lag, seconds = 0) {
  if (!lag) return "good";
  return seconds > 300 ? "bad" : seconds > 60 || lag > 10_000 ? "warn" : "";
}

function lagBadge(lag, seconds = 0) {
  return lag === null ? badge("unknown", "bad") : badge(count(lag), lagKind(lag, seconds));
}

export function search(app, label) {
  const input = h("input", {
    type: "search", placeholder: `${label} (/)`, "aria-label": label, value: app.query.search ?? "", data: { search: "1" },
    oninput: () => app.change({ search: input.value, page: "" }),
  });
  return input;
}

const problems = (tree) => Object.entries(tree.errors ?? {}).map(([broker, error]) =>
  h("p", { class: "problem inline" }, h("b", {}, `${broker}: `), error));

export const overview = {
  title: "Overview",
  async load(app, signal) {
    const tree = await get("overview", {}, signal);
    app.about(tree);
    if (tree.error) throw Object.assign(new Error(tree.error), { status: 503 });
    const ready = tree.brokers.filter((one) => one.ready).length;
    const sum = (name) => tree.brokers.reduce((all, one) => all + (one[name] ?? 0), 0);
    const known = tree.brokers.some((one) => one.in !== undefined);
    const disk = Math.max(0, ...tree.brokers.map((one) => one.disk ?? 0));
    return [
      h("div", { class: "tiles" },
        tile("Messages in", known ? rate(sum("in")) : "…", "a second"),
        tile("Messages out", known ? rate(sum("out")) : "…", "a second"),
        tile("Brokers ready", `${ready} of ${tree.brokers.length}`, "",
          ready === tree.brokers.length && ready ? "good" : "bad"),
        tile("Fullest disk", `${Math.round(disk * 100)} %`, "", disk > 0.9 ? "bad" : disk > 0.75 ? "warn" : ""),
        h("a", { class: "plain", href: link("topics"), data: { key: "tile topics" } }, tile("Topics", count(tree.topics))),
        h("a", { class: "plain", href: link("groups"), data: { key: "tile groups" } },
          tile("Consumer groups", count(tree.groups)))),
      card("Traffic", chart(tree.history)),
      card("Brokers", table([
        { title: "Broker", cell: (one) => h("a", { href: link("options", { broker: one.broker }),
          data: { key: `broker ${one.broker} ${one.id}` } }, one.broker, one.id ? ` (${one.id})` : "") },
        { title: "State", cell: (one) => one.ready ? badge("ready", "good") : badge("not ready", "bad") },
        { title: "Address", cell: (one) => h("span", { class: "mono" }, one.address) },
        { title: "In/s", right: true, cell: (one) => rate(one.in) },
        { title: "Out/s", right: true, cell: (one) => rate(one.out) },
        { title: "Disk", cell: (one) => one.disk === undefined || one.disk === null ? "–"
          : meter(one.disk, `${Math.round(one.disk * 100)} %`, one.disk > 0.9 ? "bad" : one.disk > 0.75 ? "warn" : "") },
        { title: "Memory", right: true, cell: (one) => bytes(one.memory) },
        { title: "Clients", right: true, cell: (one) => count(one.clients) },
        { title: "Up", right: true, cell: (one) => one.booted_ms ? span((tree.time_ms - one.booted_ms) / 1000) : "–" },
        { title: "Version", cell: (one) => one.pyrmq ? `pyrmq ${one.pyrmq}` : one.version ? `RocketMQ ${one.version}` : "–" },
      ], tree.brokers, { empty: "No broker is registered. Start one: pyrmq broker", caption: "Brokers" }),
      tree.brokers.filter((one) => one.error).map((one) =>
        h("p", { class: "problem inline" }, h("b", {}, `${one.broker}: `), one.error))),
    ];
  },
};

export const topics = {
  title: "Topics",
  fixed(app) {
    return h("div", { class: "bar" }, search(app, "Find a topic"),
      h("label", { class: "check" }, h("input", {
        type: "checkbox", checked: app.query.system === "1",
        onchange: (event) => app.change({ system: event.target.checked ? "1" : "", page: "" }),
      }), "system topics"),
      app.mayWrite ? createForm(app) : null);
  },
  async load(app, signal) {
    const page = Number(app.query.page ?? 0);
    const tree = await get("topics", { search: app.query.search ?? "", page, system: app.query.system ?? "" }, signal);
    return card(null, table([
      { title: "Topic", wide: true, cell: (row) => h("a", { href: link("topic", { topic: row.topic }),
        data: { key: `topic ${row.topic}` } }, row.topic) },
      { title: "Messages", right: true, cell: (row) => count(row.messages) },
      { title: "In/s", right: true, cell: (row) => rate(row.rate) },
      { title: "Last message", cell: (row) => ago(row.updated_ms) },
      { title: "Queues", right: true, cell: (row) => row.read_queues === row.write_queues ? count(row.read_queues)
        : `${row.read_queues} read, ${row.write_queues} write` },
      { title: "Brokers", cell: (row) => row.brokers.length > 3 ? `${row.brokers.length} brokers` : row.brokers.join(", ") },
      { title: "Permission", cell: (row) => row.perm.map((bits) => PERMISSIONS[bits & 6]).join(" / ") },
    ], tree.rows, { empty: app.query.search ? "No topic has this in its name." : "There is no topic yet.",
      caption: "Topics" }),
    problems(tree), pages(tree.total, page, tree.page_rows, (to) => app.change({ page: to ? String(to) : "" })));
  },
};

function createForm(app) {
  const name = h("input", { name: "topic", required: true, placeholder: "new topic", "aria-label": "Name of a new topic",
    pattern: "[\\w%\\|\\-]{1,127}" });
  const queues = h("input", { name: "queues", type: "number", min: 1, max: 1024, value: 8, "aria-label": "Queues" });
  return h("form", { class: "inline", onsubmit: async (event) => {
    event.preventDefault();
    await app.write("create-topic", { topic: name.value, queues: Number(queues.value) },
      `Created ${name.value} with ${queues.value} queues on each broker.`);
    name.value = "";
  } }, name, queues, h("button", { type: "submit" }, "Create"));
}

export const topic = {
  title: (app) => app.query.topic,
  parent: "topics",
  async load(app, signal) {
    const name = app.query.topic ?? "";
    const [tree, newest] = await Promise.all([
      get("topic", { topic: name }, signal), get("newest", { topic: name, count: 20 }, signal),
    ]);
    const kept = tree.queues.reduce((all, one) => all + one.next - one.first, 0);
    const last = Math.max(0, ...tree.queues.map((one) => one.updated_ms));
    return [
      h("div", { class: "tiles" }, tile("Messages kept", count(kept)), tile("Messages in", rate(tree.rate), "a second"),
        tile("Queues", count(tree.queues.length)), tile("Last message", ago(last))),
      card("Consumer groups", table([
        { title: "Group", wide: true, cell: (row) => h("a", { href: link("group", { group: row.group }),
          data: { key: `group ${row.group}` } }, row.group) },
        { title: "Lag", right: true, cell: (row) => lagBadge(row.lag, row.seconds) },
        { title: "Behind", right: true, cell: (row) => row.lag ? span(row.seconds) : "–" },
      ], tree.groups, { empty: "No group has consumed this topic.", caption: "Consumer groups of the topic" })),
      card("Newest messages", messageTable(newest)),
      card("Queues", table([
        { title: "Broker", cell: (row) => row.broker },
        { title: "Queue", right: true, cell: (row) => count(row.queue) },
        { title: "First", right: true, cell: (row) => count(row.first) },
        { title: "Next", right: true, cell: (row) => count(row.next) },
        { title: "Messages", right: true, cell: (row) => count(row.next - row.first) },
        { title: "Last message", cell: (row) => ago(row.updated_ms) },
      ], tree.queues, { caption: "Queues of the topic" })),
    ];
  },
};

export function messageTable(rows, first = null) {
  return table([
    ...(first ? [first] : []),
    { title: "Stored", cell: (row) => ago(row.stored_ms) },
    { title: "Id", wide: true, cell: (row) => h("a", { class: "mono", href: link("message", { topic: row.topic, id: row.id }),
      data: { key: `message ${row.offset_id}` } }, row.id) },
    { title: "Queue", cell: (row) => `${row.broker} ${row.queue}:${row.offset}` },
    { title: "Keys", cell: (row) => row.keys.join(" ") || "–" },
    { title: "Tag", cell: (row) => row.tags ?? "–" },
    { title: "Size", right: true, cell: (row) => bytes(row.size) },
    { title: "Body", wide: true, cell: (row) => h("span", { class: "preview mono" }, row.preview) },
  ], rows, { empty: "No messages.", caption: "Messages" });
}

export const groups = {
  title: "Consumer groups",
  fixed: (app) => h("div", { class: "bar" }, search(app, "Find a group")),
  async load(app, signal) {
    const page = Number(app.query.page ?? 0);
    const tree = await get("groups", { search: app.query.search ?? "", page }, signal);
    return card(null, table([
      { title: "Group", wide: true, cell: (row) => h("a", { href: link("group", { group: row.group }),
        data: { key: `group ${row.group}` } }, row.group) },
      { title: "Lag", right: true, cell: (row) => lagBadge(row.lag) },
      { title: "Members", right: true, cell: (row) => row.members === 0 && row.lag > 0
        ? badge("no member", "bad") : count(row.members) },
      { title: "Topics", wide: true, cell: (row) => row.error ? h("span", { class: "quiet" }, row.error)
        : row.topics.length > 3 ? `${row.topics.length} topics` : row.topics.join(", ") || "–" },
    ], tree.rows, { empty: app.query.search ? "No group has this in its name." : "There is no consumer group yet.",
      caption: "Consumer groups" }),
    tree.ranked ? null : h("p", { class: "quiet" }, "There are too many groups to rank them by lag: they are in the order of their names."),
    problems(tree), pages(tree.total, page, tree.page_rows, (to) => app.change({ page: to ? String(to) : "" })));
  },
};

export const group = {
  title: (app) => app.query.group,
  parent: "groups",
  fixed: (app) => app.mayWrite ? seekForm(app) : null,
  async load(app, signal) {
    const tree = await get("group", { group: app.query.group ?? "" }, signal);
    const lag = tree.queues.reduce((all, one) => all + one.messages, 0);
    const most = Math.max(1, ...tree.queues.map((one) => one.messages));
    const behind = Math.max(0, ...tree.queues.map((one) => one.seconds));
    return [
      h("div", { class: "tiles" }, tile("Lag", count(lag), "messages", lagKind(lag, behind)),
        tile("Behind", lag ? span(behind) : "–"),
        tile("Members", count(tree.members.length), "", lag && !tree.members.length ? "bad" : ""),
        tile("Kind", { CONSUME_PASSIVELY: "push", CONSUME_ACTIVELY: "pull", CONSUME_POP: "pop" }[tree.consume_type] ?? "–",
          tree.message_model.toLowerCase()),
        h("a", { class: "plain", href: link("dead-letters", { group: tree.group }), data: { key: "dead letters" } },
          tile("Dead letters", "Look →"))),
      card("Lag by queue", table([
        { title: "Topic", wide: true, cell: (row) => h("a", { href: link("topic", { topic: row.topic }),
          data: { key: `queue ${row.topic} ${row.broker} ${row.queue}` } }, row.topic) },
        { title: "Queue", cell: (row) => `${row.broker} ${row.queue}` },
        { title: "Lag", cell: (row) => meter(row.messages / most, count(row.messages), lagKind(row.messages, row.seconds)) },
        { title: "In flight", right: true, cell: (row) => count(row.in_flight) },
        { title: "Behind", right: true, cell: (row) => row.messages ? span(row.seconds) : "–" },
        { title: "Committed", right: true, cell: (row) => count(row.committed) },
        { title: "Next", right: true, cell: (row) => count(row.next) },
      ], tree.queues, { empty: "The group has committed nothing yet.", caption: "Lag by queue" })),
      card("Members", table([
        { title: "Client", wide: true, cell: (row) => h("span", { class: "mono" }, row.client_id) },
        { title: "Address", cell: (row) => h("span", { class: "mono" }, row.address) },
        { title: "Language", cell: (row) => row.language },
      ], tree.members, { empty: "No member is connected.", caption: "Members" })),
      Object.keys(tree.subscriptions).length ? card("Subscriptions", table([
        { title: "Topic", cell: ([name]) => name },
        { title: "Filter", cell: ([, filter]) => h("span", { class: "mono" }, filter) },
      ], Object.entries(tree.subscriptions), { caption: "Subscriptions" })) : null,
    ];
  },
};

function seekForm(app) {
  const name = h("input", { required: true, placeholder: "topic", "aria-label": "Topic", list: "topic-names" });
  const to = h("select", { "aria-label": "Where to" }, h("option", { value: "first" }, "to the oldest message"),
    h("option", { value: "last" }, "behind the newest message"), h("option", { value: "time" }, "to a time"));
  const when = h("input", { type: "datetime-local", "aria-label": "Time", hidden: true });
  to.addEventListener("change", () => { when.hidden = to.value !== "time"; when.required = !when.hidden; });
  return h("form", { class: "bar", onsubmit: async (event) => {
    event.preventDefault();
    if (!confirm(`Move ${app.query.group} on ${name.value}? Connected members follow at once.`)) return;
    const target = to.value === "time" ? String(new Date(when.value).getTime()) : to.value;
    await app.write("seek", { group: app.query.group, topic: name.value, to: target }, `Moved ${app.query.group}.`);
  } }, h("span", { class: "quiet" }, "Move the group"), name, to, when, h("button", { type: "submit" }, "Move"),
  topicNames());
}

// Suggestions for fields that take a topic.
export function topicNames() {
  const list = h("datalist", { id: "topic-names" });
  get("topic-names").then((names) => list.append(...names.slice(0, 2000).map((name) => h("option", { value: name }))),
    () => {});
  return list;
}

export const options = {
  title: "Options",
  fixed: (app) => h("div", { class: "bar" }, search(app, "Find an option")),
  async load(app, signal) {
    const tree = await get("options", { broker: app.query.broker ?? "" }, signal);
    const wanted = (app.query.search ?? "").toLowerCase();
    const rows = Object.entries(tree.options).filter(([key, value]) =>
      key.toLowerCase().includes(wanted) || value.toLowerCase().includes(wanted));
    const tabs = tree.brokers.map((name) => h("a", { href: link("options", { broker: name, search: app.query.search ?? "" }),
      class: name === tree.broker ? "tab here" : "tab", "aria-current": name === tree.broker ? "true" : null,
      data: { key: `tab ${name}` } }, name));
    return card(null, h("div", { class: "tabs" }, tabs), table([
      { title: "Option", cell: ([key]) => h("span", { class: "mono" }, key) },
      { title: "Value", wide: true, cell: ([key, value]) => app.mayWrite ? h("button", {
        type: "button", class: "value mono", title: "Change it", data: { key: `option ${key}` },
        onclick: async () => {
          const given = prompt(`${key} of ${tree.broker}`, value);
          if (given === null || given === value) return;
          await app.write("set-option", { broker: tree.broker, key, value: given }, `${key} of ${tree.broker} is ${given}.`);
        },
      }, value || "(empty)") : h("span", { class: "mono" }, value) },
    ], rows, { empty: "No option has this in its name or value.", caption: `Options of ${tree.broker}` }));
  },
  every: 15_000,
};

