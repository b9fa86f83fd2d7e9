// Settings and fingerprints of the runs, those that differ first.

function settings(data) {
  return h(
    "div.settings",
    {},
    h(
      "section",
      {},
      h("h2", {}, data.runs.length > 1 ? "Runs" : "Run"),
      comparison(data, aboutRows(data)),
    ),
    data.runs.length > 1 && h("section", {}, h("h2", {}, "Settings that differ"), differing(data, data.settings)),
    h("section", {}, h("h2", {}, "Fingerprint"), fingerprint(data)),
    h("section", {}, h("h2", {}, "All settings"), allSettings(data)),
  );
}

function aboutRows(data) {
  const rows = [
    ["directory", (run) => run.path],
    ["state", state],
    ["preset", (run) => run.preset],
    ["world", (run) => run.world],
    ["seed", (run) => run.seed],
    ["verifier", (run) => run.verifier],
    ["wall-clock time", (run) => run.seconds && `${Math.round(run.seconds).toLocaleString("en-US")} s`],
    ["commit", (run) => run.commit],
    ["machine", (run) => run.machine],
  ];
  return rows.map(([name, of]) => ({ name, values: data.runs.map((run) => of(run) ?? null) }));
}

function differing(data, rows) {
  const found = rows.filter((row) => row.differ);
  return found.length ? comparison(data, found) : h("p.quiet", {}, "None.");
}

function fingerprint(data) {
  const missing = data.runs.filter((run) => !run.finished).map((run) => run.key);
  const note = missing.length ? h("p.note", {}, `Written at the end of a run; not there yet: ${missing.join(", ")}.`) : null;
  if (!data.fingerprint.length) return note || h("p.quiet", {}, "None was recorded.");
  const same = data.runs.length > 1 && !missing.length && !data.fingerprint.some((row) => row.differ);
  return [
    h("p.note", {}, "What a result depends on besides the policy: accuracies compare if this is the same.", same && " It is, in all runs."),
    comparison(data, data.fingerprint),
    note,
  ];
}

function allSettings(data) {
  const host = h("div", {});
  const input = h("input", { type: "search", placeholder: "part of a name or value", "aria-label": "Filter the settings" });
  const draw = () => {
    const wanted = input.value.toLowerCase();
    const rows = data.settings.filter((row) => [row.name, ...row.values].join(" ").toLowerCase().includes(wanted));
    fill(host, rows.length ? comparison(data, rows) : h("p.quiet", {}, "No setting has that."));
  };
  input.addEventListener("input", draw);
  draw();
  return [h("div.controls", {}, input), host];
}

function comparison(data, rows) {
  const several = data.runs.length > 1;
  return h(
    "div.scroll",
    { tabindex: 0, role: "region", "aria-label": "Comparison of runs" },
    h(
      "table.compare",
      {},
      several && h("thead", {}, h("tr", {}, h("th", {}, ""), data.runs.map((run, place) => h("th", { scope: "col" }, runDot(data, place), run.key)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(row.differ ? "tr.differ" : "tr", {}, h("th", { scope: "row" }, row.name), row.values.map((value) => h("td", {}, value ?? "–"))),
        ),
      ),
    ),
  );
}
