// Line charts as SVG: axes, legend, intervals, and what is under the pointer.

const MARGIN = { left: 42, right: 10, top: 8, bottom: 24 };
const HEIGHT = 190;
const SHARES = /share|reward/;

/** A chart. series: [{label, colour, dash, points: [[x, y, low?, high?]], faint?: [[x, y]], dots}] */
function chart({ title, unit, series, domain }) {
  const drawn = series.filter((one) => one.points.length);
  const say = sameFormat(drawn.flatMap((one) => one.points.map((point) => point[1])));
  const box = h("div.plot", {});
  const tip = h("div.tip", { hidden: true });
  const figure = h(
    "figure.chart",
    {},
    h("figcaption", {}, h("h4", {}, title), unit && h("span.unit", {}, unit)),
    drawn.length > 1 ? legend(drawn, say) : null,
    box,
    tip,
  );
  let width = 0;
  const draw = () => {
    const now = Math.floor(box.clientWidth);
    if (!now || now === width) return;
    width = now;
    fill(box, plot(drawn, width, domain, tip, say, `${title}: ${described(drawn, say)}`));
  };
  resized.observe(box);
  box.drawChart = draw;
  return figure;
}

const resized = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.drawChart?.();
});

function legend(series, say) {
  return h(
    "ul.legend",
    {},
    series.map((one) =>
      h("li", {}, swatch(one), h("span", {}, one.label), h("b", {}, say(one.points.at(-1)[1]))),
    ),
  );
}

function swatch(one) {
  const line = h("line", { x1: 0, x2: 18, y1: 5, y2: 5, "stroke-width": 2.5, "stroke-dasharray": one.dash });
  line.style.stroke = one.colour;
  return h("svg", { width: 18, height: 10, "aria-hidden": "true" }, line);
}

/** What a screen reader says of a chart. */
function described(series, say) {
  return series.map((one) => `${one.label} from ${say(one.points[0][1])} to ${say(one.points.at(-1)[1])}`).join("; ");
}

function plot(series, width, domain, tip, say, label) {
  const all = series.flatMap((one) => [...one.points, ...(one.faint || [])]);
  const xs = all.map((point) => point[0]);
  const ys = all.flatMap((point) => point.slice(1)).filter((y) => y !== null && y !== undefined);
  const [x0, x1] = [Math.min(...spread(xs)), Math.max(...spread(xs))];
  const [low, high, marks] = axis(domain ? [...ys, ...domain] : ys);
  const [inner, tall] = [width - MARGIN.left - MARGIN.right, HEIGHT - MARGIN.top - MARGIN.bottom];
  const x = (value) => MARGIN.left + (x1 === x0 ? inner / 2 : ((value - x0) / (x1 - x0)) * inner);
  const y = (value) => MARGIN.top + tall - ((value - low) / (high - low)) * tall;

  const svg = h("svg", { width, height: HEIGHT, role: "img", "aria-label": label });
  for (const mark of marks) {
    svg.append(h("line.grid", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(mark), y2: y(mark) }));
    svg.append(h("text.mark", { x: MARGIN.left - 6, y: y(mark) + 3.5, "text-anchor": "end" }, tick(mark, marks)));
  }
  for (const mark of steps(x0, x1, inner)) {
    svg.append(h("text.mark", { x: x(mark), y: HEIGHT - 6, "text-anchor": "middle" }, mark.toLocaleString("en-US")));
  }
  for (const one of series) svg.append(curve(one, x, y));
  hover(svg, series, x, y, [x0, x1], width, tip, say);
  return svg;
}

function curve(one, x, y) {
  const path = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)},${y(b).toFixed(1)}`).join("");
  const group = h("g", {});
  group.style.color = one.colour;
  const band = one.points.filter((point) => point[2] !== undefined);
  if (band.length > 1) {
    const upper = band.map(([a, , , high]) => [a, high]);
    const lower = band.map(([a, , low]) => [a, low]).reverse();
    group.append(h("path.band", { d: `${path([...upper, ...lower])}Z` }));
  }
  if (one.faint) group.append(h("path.faint", { d: path(one.faint) }));
  group.append(h("path.line", { d: path(one.points), "stroke-dasharray": one.dash }));
  if (one.dots || one.points.length === 1) {
    for (const [a, b] of one.points) group.append(h("circle.dot", { cx: x(a), cy: y(b), r: 2.6 }));
  }
  return group;
}

/** Values of all curves where the pointer is. */
function hover(svg, series, x, y, [x0, x1], width, tip, say) {
  const guide = h("line.guide", { y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
  svg.append(guide);
  const hide = () => {
    guide.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  const show = (event) => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const steps = [...new Set(series.flatMap((one) => one.points.map((point) => point[0])))];
    const step = steps.reduce((best, one) => (Math.abs(x(one) - at) < Math.abs(x(best) - at) ? one : best), steps[0]);
    guide.setAttribute("x1", x(step));
    guide.setAttribute("x2", x(step));
    guide.setAttribute("visibility", "visible");
    const rows = series.flatMap((one) => {
      const point = one.points.find((each) => each[0] === step);
      if (!point) return [];
      const range = point[2] === undefined ? "" : ` [${say(point[2])}, ${say(point[3])}]`;
      return [h("li", {}, swatch(one), h("span", {}, one.label), h("b", {}, say(point[1])), range)];
    });
    fill(tip, h("strong", {}, `step ${step}`), h("ul", {}, rows));
    tip.hidden = false;
    tip.style.setProperty("left", `${Math.min(Math.max(x(step) - tip.offsetWidth / 2, 0), Math.max(width - tip.offsetWidth, 0))}px`);
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
}

/** At least one unit wide, so that nothing is divided by zero. */
function spread(values) {
  return values.length ? values : [0, 1];
}

/** Round ends and marks of a vertical axis. */
function axis(values) {
  let [low, high] = [Math.min(...spread(values)), Math.max(...spread(values))];
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, low), Math.max(0, high)];
  if (low > 0 && low < 0.5 * high) low = 0;
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 2.5, 5, 10].map((times) => times * power).find((one) => one >= rough * 0.999);
  const first = Math.floor(low / size + 1e-9) * size;
  const marks = [];
  for (let i = 0; first + i * size < high + size * 0.999; i++) marks.push(Number((first + i * size).toPrecision(12)));
  return [marks[0], marks.at(-1), marks];
}

function tick(mark, marks) {
  const size = Math.abs(marks[1] - marks[0]);
  const largest = Math.max(...marks.map(Math.abs));
  if (largest >= 10000) return `${number(mark / 1000)}k`;
  if (largest < 0.001) return mark === 0 ? "0" : mark.toExponential(0);
  return mark.toFixed(Math.max(0, Math.min(4, -Math.floor(Math.log10(size) + 1e-9) + (String(size).includes("25") ? 1 : 0))));
}

/** Round steps along the bottom. */
function steps(x0, x1, width) {
  const most = Math.max(2, Math.floor(width / 60));
  const size = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000, 10000].find((one) => (x1 - x0) / one <= most) || 20000;
  const marks = [];
  for (let mark = Math.ceil(x0 / size) * size; mark <= x1; mark += size) marks.push(mark);
  return marks;
}

/** Running mean over the last `width` values that there are. */
function smoothed(points, width) {
  let sum = 0;
  return points.map(([x, y], i) => {
    sum += y - (i >= width ? points[i - width][1] : 0);
    return [x, sum / Math.min(width, i + 1)];
  });
}
