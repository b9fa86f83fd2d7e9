"use strict";
// Curves, drawn by uPlot.

const COLOURS = 8;
// Five dashes and eight colours have forty pairs before one comes again.
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [12, 4]];
const HEIGHT = 210;
const drawn = new Set();

/** An element: h("a.link", {href, onclick}, child, "text"). Text is set as text, never as HTML. */
function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== false));
  return element;
}

/** A colour of the style sheet as rgb(), light or dark as the page is. */
function cssColour(name) {
  const probe = document.body.appendChild(h("i", { hidden: true }));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** A number as people read it, with as many digits as its neighbours on an axis need. */
function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 10000) return `${Number((value / 1000).toPrecision(digits))}k`;
  if (size > 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

/** Mean over the last `width` values that there are. */
function runningMean(values, width) {
  const last = [];
  return values.map((value) => {
    if (value === null) return null;
    last.push(value);
    if (last.length > width) last.shift();
    return last.reduce((a, b) => a + b, 0) / last.length;
  });
}

/** A figure with its chart. `hidden`: labels of curves that are not shown. */
function chart(data, means, smooth, hidden) {
  const series = (means && data.means.length ? data.means : data.series).filter((one) => !hidden.has(one.label));
  const host = h("div.plot", {});
  const said = series.map((one) => `${one.label}: ${number(one.y.findLast((y) => y !== null))}`).join("; ");
  const figure = h("figure.chart", { role: "img", "aria-label": `${data.title}. ${said}` }, h("figcaption", {}, h("h4", {}, data.title), h("span.unit", {}, data.unit)), host);
  host.draw = () => draw(host, data, series, smooth);
  drawn.add(host);
  resized.observe(host);
  return figure;
}

const resized = new ResizeObserver((entries) => {
  // Drawing changes sizes, which an observer must not do at once.
  for (const { target } of entries) if (target.clientWidth !== target.shown) requestAnimationFrame(() => target.draw());
});

/** Draws a chart at its present width, in the present colours. */
function draw(host, data, series, smooth) {
  host.shown = host.clientWidth;
  if (!host.shown) return;
  host.plot?.destroy();
  const over = (values) => (smooth > 1 && !data.unit.includes("answered") ? runningMean(values, smooth) : values);
  const columns = [data.x], shown = [{ label: "step" }], bands = [];
  for (const one of series) {
    const stroke = cssColour(`--c${one.colour % COLOURS}`);
    const dash = DASHES[one.dash % DASHES.length];
    columns.push(over(one.y));
    const points = { show: one.y.filter((y) => y !== null).length < 12, size: 5 };
    shown.push({ label: one.label, stroke, dash, width: 1.8, spanGaps: true, points, value: (_, value) => number(value) });
    if (!one.low) continue;
    columns.push(over(one.high), over(one.low));
    for (const end of ["high", "low"]) shown.push({ label: `${one.label}, ${end} end`, width: 0, spanGaps: true, points: { show: false } });
    bands.push({ series: [columns.length - 2, columns.length - 1], fill: stroke.replace("rgb(", "rgba(").replace(")", ", 0.15)") });
  }
  const line = { stroke: cssColour("--soft"), grid: { stroke: cssColour("--line"), width: 1 }, ticks: { show: false } };
  const range = (_, low, high) => (data.share ? [0, 1] : low === high ? [Math.min(0, low), Math.max(1, high)] : uPlot.rangeNum(low, high, 0.1, true));
  const options = {
    width: host.shown,
    height: HEIGHT,
    series: shown,
    bands,
    scales: { x: { time: false }, y: { range } },
    axes: [{ ...line, size: 28, label: "step", labelSize: 16, labelGap: -2, incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 2000, 5000] }, { ...line, size: 48, values: (_, marks) => marks.map((mark) => number(mark, 4)) }],
    cursor: { y: false, drag: { setScale: false, x: false } },
    legend: { live: true },
  };
  host.plot = new uPlot(options, columns, host);
  host.plot.setCursor({ left: host.plot.valToPos(data.x.at(-1), "x"), top: 0 });
  // The ends of intervals are shaded, and need no place in the legend.
  host.querySelectorAll(".u-legend .u-series").forEach((row, i) => (row.hidden = i > 0 && shown[i].width === 0));
}

/** Draws all charts of the page anew, after its colours have changed. */
function redraw() {
  for (const host of drawn) {
    if (host.isConnected) host.draw();
    else drawn.delete(host);
  }
}

const view = { smooth: 1, means: true, hidden: new Set() };

/** Puts the charts under their headings, and what chooses between curves above them. */
function curves(data, section) {
  const again = () => curves(data, section);
  const choice = (label, options, value, set) => {
    const select = h("select", { onchange: () => (set(options[select.selectedIndex][1]), again()) }, options.map(([name, each]) => h("option", { selected: each === value }, name)));
    return h("label.choice", {}, h("span", {}, label), select);
  };
  const toggle = ({ label, colour }) => {
    const on = !view.hidden.has(label);
    const click = () => (on ? view.hidden.add(label) : view.hidden.delete(label), again());
    return h("button.toggle", { type: "button", "aria-pressed": String(on), onclick: click }, h(`span.dot.c${colour % COLOURS}`, {}), label);
  };
  const averaged = data.charts.find((one) => one.means.length);
  const lines = averaged && view.means ? averaged.means : data.charts[0]?.series || [];
  section.querySelector(".controls").replaceChildren(
    ...(data.runs.length > 1 ? lines.map(toggle) : []),
    ...(averaged ? [choice("Seeds", [[averaged.means.every((one) => one.low) ? "mean with 95% interval" : "mean", true], ["each", false]], view.means, (value) => (view.means = value, view.hidden.clear()))] : []),
    ...(data.charts.some((one) => one.x.length > 6) ? [choice("Running mean", [["off", 1], ["5 steps", 5], ["20 steps", 20]], view.smooth, (value) => (view.smooth = value))] : []),
  );
  const groups = Object.groupBy(data.charts, (one) => one.group);
  section.querySelector(".drawn").replaceChildren(
    ...Object.entries(groups).flatMap(([title, charts]) => [h("h3", {}, title), h("div.charts", {}, charts.map((one) => chart(one, view.means, view.smooth, view.hidden)))]),
  );
}
