// The rates of the last minutes as lines.

import { h, rate } from "./dom.js";

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 720;
const HEIGHT = 150;
const TOP = 8;
const BOTTOM = 128;

function svg(tag, props, ...children) {
  const node = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// The next of 1, 2, 5, 10, 20 … that is not below the value.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? 10 * power;
}

export function chart(history) {
  const now = history.length ? history[history.length - 1][0] : Date.now();
  const from = now - 300_000;
  const shown = history.filter(([at]) => at >= from);
  const most = ceiling(Math.max(1, ...shown.map(([, into, out]) => Math.max(into, out))));
  const x = (at) => ((at - from) / 300_000) * WIDTH;
  const y = (value) => BOTTOM - (value / most) * (BOTTOM - TOP);
  const line = (index) => shown.map((point) => `${x(point[0]).toFixed(1)},${y(point[index]).toFixed(1)}`).join(" ");
  const drawing = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", preserveAspectRatio: "none",
    "aria-label": "Messages a second in the last five minutes",
  });
  for (const part of [0, 0.5, 1]) {
    drawing.append(svg("line", { x1: 0, x2: WIDTH, y1: y(most * part), y2: y(most * part), class: "grid" }));
  }
  if (shown.length > 1) {
    const first = x(shown[0][0]).toFixed(1);
    const last = x(shown[shown.length - 1][0]).toFixed(1);
    drawing.append(
      svg("polygon", { points: `${first},${BOTTOM} ${line(1)} ${last},${BOTTOM}`, class: "area in" }),
      svg("polyline", { points: line(2), class: "line out" }),
      svg("polyline", { points: line(1), class: "line in" }),
    );
  }
  const scale = [most, most / 2, 0].map((value) => h("span", {}, rate(value)));
  return h("figure", { class: "traffic" },
    h("div", { class: "plot" }, h("div", { class: "scale", "aria-hidden": "true" }, scale), drawing),
    h("figcaption", {}, h("span", {}, "5 min ago"),
      h("span", { class: "legend" }, h("i", { class: "in" }), "in", h("i", { class: "out" }), "out"),
      h("span", {}, "now")));
}
