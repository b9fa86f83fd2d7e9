// The list of games: rows, filters and order.

const ROWS_AT_ONCE = 200;

/** Games of all runs as rows {run, step, index, outcome, ...}, sorted by run and step. */
class GameList {
  constructor(app) {
    this.app = app;
    this.steps = app.data.runs.map(() => new Map());
    this.found = [];
    this.current = null;
    this.limit = ROWS_AT_ONCE;
    this.find = h("input.find", { type: "search", placeholder: "Find in questions and answers  ( / )", "aria-label": "Find text in games", oninput: () => this.apply() });
    this.filters = h("div.grid", {});
    this.count = h("p.count", { "aria-live": "polite" });
    this.rows = h("div.list", { tabindex: 0, "aria-label": "Games" });
    this.element = h("aside.shelf", {}, h("div.finder", {}, this.find), h("details.filters", {}, h("summary", {}, "Filter and sort"), this.filters), this.count, this.rows);
  }

  /** Takes the rows of steps: {step: rows}. */
  put(run, steps) {
    for (const [step, rows] of Object.entries(steps)) {
      this.steps[run].set(Number(step), rows.map((game) => ({ run, step: Number(step), ...game })));
    }
    this.all = this.steps.flatMap((each) => [...each.keys()].sort((a, b) => a - b).flatMap((step) => each.get(step)));
    this.offer();
    this.apply();
  }

  /** Offers the values that there are as filters, and keeps what was chosen. */
  offer() {
    const chosen = Object.fromEntries([...this.filters.querySelectorAll("select, input")].map((one) => [one.name, one.value]));
    const select = (name, label, options) => h("label", {}, h("span", {}, label), h("select", { name, onchange: () => this.apply() }, options.map(([value, text]) => h("option", { value, selected: chosen[name] === String(value) }, text))));
    const counted = (name, label, words = String) => {
      const counts = new Map();
      for (const game of this.all) if (game[name] !== null) counts.set(game[name], (counts.get(game[name]) || 0) + 1);
      const known = [...counts].sort((a, b) => (a[0] > b[0] ? 1 : -1));
      return select(name, label, [["", "any"], ...known.map(([value, count]) => [value, `${words(value)} (${count})`])]);
    };
    const bound = (name, label) => h("label", {}, h("span", {}, label), h("input", { name, type: "number", step: "any", value: chosen[name] || "", oninput: () => this.apply() }));
    const { runs } = this.app.data;
    this.filters.replaceChildren(
      ...(runs.length > 1 ? [counted("run", "Run", (run) => runs[run].key)] : []),
      counted("outcome", "Outcome"),
      counted("reason", "Reason", reasonName),
      counted("hops", "Hops"),
      counted("origin", "Question is"),
      select("order", "Order", [["", "oldest first"], ["newest", "newest first"], ["hardest", "hardest first"], ["paid", "best paid first"]]),
      bound("from", "From step"),
      bound("to", "To step"),
      bound("least", "Solve rate from"),
      bound("most", "Solve rate to"),
    );
  }

  apply() {
    const form = Object.fromEntries([...this.filters.querySelectorAll("select, input")].map((one) => [one.name, one.value]));
    const text = this.find.value.trim().toLowerCase();
    const equal = ["run", "outcome", "reason", "hops", "origin"].filter((name) => form[name]);
    const within = (value, low, high) => (!low && !high) || (value !== null && (!low || value >= Number(low)) && (!high || value <= Number(high)));
    this.found = this.all.filter(
      (game) =>
        equal.every((name) => String(game[name]) === form[name]) &&
        within(game.step, form.from, form.to) &&
        within(game.rate, form.least, form.most) &&
        (!text || [game.question, game.answer, game.reason].some((one) => one?.toLowerCase().includes(text))),
    );
    if (form.order === "newest") this.found.reverse();
    if (form.order === "hardest") this.found.sort((a, b) => (a.rate ?? 2) - (b.rate ?? 2));
    if (form.order === "paid") this.found.sort((a, b) => (b.reward ?? -9) - (a.reward ?? -9));
    this.limit = ROWS_AT_ONCE;
    this.draw();
  }

  draw() {
    const [found, all] = [this.found.length, this.all.length].map((count) => count.toLocaleString("en-US"));
    this.count.textContent = found === all ? `${all} games` : `${found} of ${all} games`;
    const more = this.found.length > this.limit && h("button.link", { type: "button", onclick: () => ((this.limit += ROWS_AT_ONCE), this.draw()) }, "show more");
    this.rows.replaceChildren(...this.found.slice(0, this.limit).map((game) => this.row(game)), ...(more ? [more] : []));
  }

  row(game) {
    const { runs } = this.app.data;
    const text = game.judged ? `${game.right}/${game.judged} right` : "";
    return h(
      this.app.link(game) === this.current ? "a.row.current" : "a.row",
      { href: this.app.link(game) },
      h("span.text", {}, game.question || h("em", {}, `no question, for “${game.answer}”`)),
      h(
        "span.meta",
        {},
        runs.length > 1 && h(`span.dot.c${runs[game.run].colour % COLOURS}`, { title: runs[game.run].key }),
        h("span", {}, `${game.step} · ${game.index}`),
        h(`span.pill.${game.outcome}`, {}, game.reason ? reasonName(game.reason) : game.outcome),
        game.hops !== null && h("span", {}, game.hops === 1 ? "1 hop" : `${game.hops} hops`),
        game.origin !== "proposed" && h("span", {}, game.origin),
        h("span.solved", {}, text),
      ),
    );
  }

  /** Marks a game and brings it into view. */
  mark(link) {
    this.current = link;
    const place = this.found.findIndex((game) => this.app.link(game) === link);
    if (place >= this.limit) this.limit = place + ROWS_AT_ONCE;
    this.draw();
    this.rows.querySelector(".current")?.scrollIntoView({ block: "nearest" });
  }

  /** The game before or after the current one in the list. */
  neighbour(by) {
    const place = this.found.findIndex((game) => this.app.link(game) === this.current);
    return this.found[place < 0 ? (by > 0 ? 0 : -1) : place + by];
  }
}

function reasonName(reason) {
  return reason.replaceAll("_", " ");
}
