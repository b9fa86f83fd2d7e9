// The first view: what came out, and every curve.

const view = { smooth: null, mean: true, hidden: new Set() };

function overview(data) {
  const host = h("div.overview", {});
  const redraw = () => fill(host, results(data), curves(data, redraw), lastSteps(data));
  redraw();
  return host;
}

// -- tables ------------------------------------------------------------------------------------

function results(data) {
  const table = data.tables.accuracy;
  if (!table.groups.length) return h("section", {}, h("h2", {}, "Accuracy on unseen questions"), h("p.quiet", {}, "No evaluation has been made yet."));
  const rows = data.runs.map((run, place) => accuracyRow(data, run, table.runs[place], table.groups, place));
  const means = table.arms.map((arm) =>
    h(
      "tr.mean",
      {},
      h("th", { scope: "row" }, `mean of ${arm.runs} runs`, h("small", {}, `step ${arm.step}, ${armName(data, arm.arm)}`)),
      table.groups.map((group) => h("td", {}, interval(arm.values[group]))),
    ),
  );
  const asked = table.runs.find(Boolean)?.last.questions || {};
  const counts = [...new Set(Object.values(asked))];
  return h(
    "section",
    {},
    h("h2", {}, "Accuracy on unseen questions"),
    h(
      "div.scroll",
      { tabindex: 0, role: "region", "aria-label": "Accuracy table" },
      h(
        "table.results",
        {},
        h("thead", {}, h("tr", {}, h("th", {}, "run"), table.groups.map((group) => h("th", { scope: "col" }, groupName(group))))),
        h("tbody", {}, rows, means),
      ),
    ),
    h(
      "p.note",
      {},
      "Small figures: before training. Brackets: 95% intervals",
      counts.length === 1 ? ` over ${plural(counts[0], "question")} each (Wilson)` : " over questions (Wilson)",
      means.length ? "; of a mean, over runs (Student’s t)." : ".",
    ),
  );
}

function accuracyRow(data, run, ends, groups, place) {
  const name = h("th", { scope: "row" }, runDot(data, place), run.key);
  if (!ends) return h("tr", {}, name, h("td", { colspan: groups.length }, "not evaluated yet"));
  name.append(h("small", {}, `step ${ends.last.step}${run.finished ? "" : `, ${state(run)}`}`));
  return h(
    "tr",
    {},
    name,
    groups.map((group) => {
      const [first, last] = [ends.first.values[group], ends.last.values[group]];
      return h("td", {}, interval(last), ends.first.step !== ends.last.step && first && h("small.before", {}, `from ${share(first[0])}`));
    }),
  );
}

function interval(value) {
  if (!value) return "–";
  return [h("b", {}, share(value[0])), h("span.range", {}, `[${share(value[1])}, ${share(value[2])}]`)];
}

function lastSteps(data) {
  const table = data.tables.last;
  if (!table.figures.length) return null;
  const heading = (place, name) => h("th", { scope: "col" }, data.runs.length > 1 && runDot(data, place), name);
  let group = null;
  const rows = table.figures.flatMap((figure) => {
    const values = data.runs.map((run, place) => table.runs[place][figure.name]);
    const say = sameFormat([...values, ...table.arms.flatMap((arm) => arm.values[figure.name] || [])]);
    const row = h(
      "tr",
      {},
      h("th", { scope: "row" }, figure.label),
      values.map((value) => h("td", {}, say(value))),
      table.arms.map((arm) => h("td", {}, interval3(arm.values[figure.name], say))),
    );
    const title = figure.heading !== group && h("tr.group", {}, h("th", { colspan: 1 + data.runs.length + table.arms.length, scope: "rowgroup" }, figure.heading));
    group = figure.heading;
    return [title, row];
  });
  return h(
    "details.section",
    { open: true },
    h("summary", {}, h("h2", {}, `The last ${plural(Math.min(table.steps, Math.max(...data.runs.map((run) => run.done))), "step")}, on average`)),
    h(
      "div.scroll",
      { tabindex: 0, role: "region", "aria-label": "Averages of the last steps" },
      h(
        "table.figures",
        {},
        h("thead", {}, h("tr", {}, h("th", {}, ""), data.runs.map((run, place) => heading(place, run.key)), table.arms.map((arm) => h("th", { scope: "col" }, `mean [95%]`, h("small", {}, armName(data, arm.arm)))))),
        h("tbody", {}, rows),
      ),
    ),
  );
}

function interval3(value, say) {
  if (!value) return "–";
  return [h("b", {}, say(value[0])), h("span.range", {}, `[${say(value[1])}, ${say(value[2])}]`)];
}

function armName(data, arm) {
  const runs = data.arms[arm].map((place) => data.runs[place]);
  return `seeds ${runs.map((run) => run.seed).join(", ")}`;
}

function runDot(data, place) {
  if (data.runs.length < 2) return null;
  const dot = h("span.dot", { "aria-hidden": "true" });
  dot.style.background = colour(place);
  return dot;
}

function state(run) {
  if (run.finished) return "finished";
  return run.planned ? `at step ${run.done} of ${run.planned}` : `at step ${run.done}`;
}

// -- curves ------------------------------------------------------------------------------------

function curves(data, redraw) {
  const longest = Math.max(...data.runs.map((run) => run.done));
  if (view.smooth === null) view.smooth = longest >= 60 ? 5 : 1;
  const several = data.arms.some((arm) => arm.length > 1);
  const groups = new Map([["Accuracy and rewards", accuracyCharts(data)]]);
  const zero = [];
  for (const one of data.charts) {
    const drawn = figureCharts(data, one, zero);
    groups.set(one.group, [...(groups.get(one.group) || []), ...drawn]);
  }
  return h(
    "section.curves",
    {},
    h("h2", {}, "Curves"),
    h(
      "div.controls",
      {},
      data.runs.length > 1 && data.runs.map((run, place) => runToggle(data, run, place, redraw)),
      several && choice("Seeds", [["each", false], ["mean with 95% interval", true]], view.mean, (value) => ((view.mean = value), redraw())),
      longest > 5 && choice("Running mean", [["off", 1], ["5 steps", 5], ["20 steps", 20]], view.smooth, (value) => ((view.smooth = value), redraw())),
    ),
    [...groups].map(([title, charts]) => charts.length && [h("h3", {}, title), h("div.charts", {}, charts)]),
    zero.length ? h("p.note", {}, "Always 0, and not drawn: ", zero.join(", "), ".") : null,
  );
}

function choice(label, options, value, set) {
  const select = h(
    "select",
    { onchange: () => set(options[select.selectedIndex][1]) },
    options.map(([name, each]) => h("option", { selected: each === value }, name)),
  );
  return h("label.choice", {}, h("span", {}, label), select);
}

function runToggle(data, run, place, redraw) {
  const on = !view.hidden.has(place);
  const toggle = () => {
    if (on) view.hidden.add(place);
    else view.hidden.delete(place);
    redraw();
  };
  return h("button.toggle", { type: "button", "aria-pressed": String(on), onclick: toggle }, runDot(data, place), run.key);
}

function accuracyCharts(data) {
  const shown = visible(data);
  const groups = data.tables.accuracy.groups;
  const points = (place, group) => data.runs[place].accuracy[group] || [];
  if (!groups.some((group) => shown.some((place) => points(place, group).length))) return [];
  const common = { unit: "share answered right", domain: [0, 1] };
  if (data.runs.length === 1) {
    const series = groups.map((group, i) => ({ label: groupName(group), colour: colour(i), dash: dash(i), points: points(0, group), dots: true }));
    return [chart({ title: "Unseen questions, with 95% intervals", series, ...common })];
  }
  return groups.map((group) => chart({ title: groupName(group), series: byRun(data, shown, (place) => points(place, group), true), ...common }));
}

/** The charts of some figures: one for a single run, one per figure where runs are compared. */
function figureCharts(data, one, zero) {
  const live = one.figures.flatMap((name, i) => {
    const values = data.runs.flatMap((run) => run.figures[name] || []);
    if (values.some((value) => value)) return [[name, one.labels[i]]];
    zero.push(`${one.title ? `${one.title.toLowerCase()}: ` : ""}${one.labels[i]}`);
    return [];
  });
  if (!live.length) return [];
  const shares = live.every(([name]) => SHARES.test(name) || /^(valid|verified)_rate|^invalid_|^filled/.test(name));
  const common = { unit: one.unit, domain: shares && one.unit !== "share of proposals" ? [0, 1] : null };
  if (data.runs.length === 1) {
    const series = live.map(([name, label], i) => ({ label, colour: colour(i), dash: dash(i), ...line(data.runs[0], name) }));
    const title = live.length === 1 && one.figures.length > 1 ? `${one.title}: ${live[0][1]}` : one.title;
    return [chart({ title, series, ...common })];
  }
  const shown = visible(data);
  return live.map(([name, label]) => {
    const title = live.length > 1 || one.figures.length > 1 ? `${one.title}: ${label}` : one.title;
    return chart({ title, series: byRun(data, shown, (place) => line(data.runs[place], name).points), ...common });
  });
}

function visible(data) {
  return data.runs.map((_, place) => place).filter((place) => !view.hidden.has(place));
}

function line(run, name) {
  const values = run.figures[name] || [];
  const raw = run.at.map((step, i) => [step, values[i]]).filter(([, value]) => value !== null && value !== undefined);
  return view.smooth > 1 ? { points: smoothed(raw, view.smooth), faint: raw } : { points: raw };
}

/** One curve per run, or per arm with the interval over its seeds. */
function byRun(data, shown, points, dots = false) {
  if (!view.mean) return shown.map((place) => runSeries(data, place, points(place), dots));
  return data.arms.flatMap((arm) => {
    const members = arm.filter((place) => shown.includes(place));
    if (members.length < 2) return members.map((place) => runSeries(data, place, points(place), dots));
    const label = `mean of ${members.map((place) => data.runs[place].key).join(", ")}`;
    return [{ label, colour: colour(members[0]), dash: dash(members[0]), dots, points: meanOver(data, members.map(points)) }];
  });
}

function runSeries(data, place, points, dots) {
  return { label: data.runs[place].key, colour: colour(place), dash: dash(place), points, dots };
}

/** Mean and 95% interval over runs, at the steps that all of them have. */
function meanOver(data, lists) {
  const columns = new Map();
  for (const points of lists) for (const [x, y] of points) columns.set(x, [...(columns.get(x) || []), y]);
  return [...columns]
    .filter(([, values]) => values.length === lists.length)
    .sort((a, b) => a[0] - b[0])
    .map(([x, values]) => {
      const mean = values.reduce((a, b) => a + b, 0) / values.length;
      const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / (values.length - 1);
      const t = data.t975[Math.min(values.length - 1, data.t975.length) - 1];
      const half = t * Math.sqrt(variance / values.length);
      return [x, mean, mean - half, mean + half];
    });
}
