// The list of games: filters, finding text, and as many rows as the window shows.

const ROW_HEIGHT = 66;
const NO_REASON = "–";

/** All games of all runs as light entries, sorted by run, step and slot. */
class Shelf {
  constructor(data) {
    this.columns = Object.fromEntries(data.row.map((name, place) => [name, place + 2]));
    this.bySteps = data.runs.map(() => new Map());
    this.entries = [];
  }

  /** Takes the rows of steps: {step: rows}. */
  put(run, steps) {
    for (const [step, rows] of Object.entries(steps)) {
      this.bySteps[run].set(Number(step), rows.map((row) => [run, Number(step), ...row]));
    }
  }

  drop(run, step) {
    this.bySteps[run].delete(step);
  }

  sort() {
    this.entries = this.bySteps.flatMap((steps) => [...steps.keys()].sort((a, b) => a - b).flatMap((step) => steps.get(step)));
  }

  get(entry, name) {
    return entry[this.columns[name]];
  }

  steps(run) {
    return [...this.bySteps[run].keys()].sort((a, b) => a - b);
  }

  /** The values of a column with how often they come. */
  counts(name) {
    const found = new Map();
    const place = this.columns[name];
    for (const entry of this.entries) found.set(entry[place], (found.get(entry[place]) || 0) + 1);
    return [...found].filter(([value]) => value !== null).sort((a, b) => (typeof a[0] === "number" ? a[0] - b[0] : b[1] - a[1]));
  }
}

const wanted = { run: "", from: "", to: "", outcome: "", reason: "", origin: "", hops: "", paid: ["", ""], rate: ["", ""], text: "", order: "step" };

/** The entries that the filters let through. `inside`: keys of games whose whole text was found. */
function chosen(shelf, inside) {
  const column = shelf.columns;
  const text = wanted.text.trim().toLowerCase();
  const equal = ["outcome", "reason", "origin"].filter((name) => wanted[name] !== "");
  const range = ([low, high], value) => (low === "" || (value !== null && value >= Number(low) - 1e-9)) && (high === "" || (value !== null && value <= Number(high) + 1e-9));
  const found = shelf.entries.filter(
    (entry) =>
      (wanted.run === "" || entry[0] === Number(wanted.run)) &&
      (wanted.from === "" || entry[1] >= Number(wanted.from)) &&
      (wanted.to === "" || entry[1] <= Number(wanted.to)) &&
      equal.every((name) => entry[column[name]] === wanted[name]) &&
      (wanted.hops === "" || entry[column.hops] === Number(wanted.hops)) &&
      range(wanted.paid, entry[column.proposer_reward]) &&
      range(wanted.rate, entry[column.solve_rate]) &&
      (!text || (inside ? inside.has(keyOf(shelf, entry)) : lightly(entry, column, text))),
  );
  if (wanted.order === "newest") found.reverse();
  if (wanted.order === "hardest") found.sort((a, b) => (a[column.solve_rate] ?? 2) - (b[column.solve_rate] ?? 2));
  if (wanted.order === "paid") found.sort((a, b) => (b[column.proposer_reward] ?? -9) - (a[column.proposer_reward] ?? -9));
  return found;
}

function lightly(entry, column, text) {
  return [column.question, column.answer, column.reason].some((place) => entry[place]?.toLowerCase().includes(text));
}

function keyOf(shelf, entry) {
  return `${entry[0]}/${entry[1]}/${shelf.get(entry, "slot")}`;
}

/** The list with its filters. open(entry) shows a game; find(text, progress) looks into them. */
class GameList {
  constructor(app) {
    this.app = app;
    this.shelf = app.shelf;
    this.found = [];
    this.inside = null;
    this.current = null;
    this.inner = h("div.rows", {});
    this.scroller = h("div.list", { tabindex: 0, role: "listbox", "aria-label": "Games", onscroll: oncePerFrame(() => this.draw()) }, this.inner);
    this.count = h("p.count", { "aria-live": "polite" });
    this.search = h("input.find", { type: "search", placeholder: "Find in questions and answers  ( / )", "aria-label": "Find text in games", value: wanted.text });
    this.search.addEventListener("input", debounce(() => this.typed(), 120));
    this.search.addEventListener("keydown", (event) => event.key === "Enter" && this.lookInside());
    this.filters = h("div.filters", {});
    this.element = h("aside.shelf", {}, h("div.finder", {}, this.search), this.filters, this.count, this.scroller);
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.refresh();
  }

  /** After games came or went. */
  refresh() {
    fill(this.filters, this.controls());
    this.apply();
  }

  typed() {
    wanted.text = this.search.value;
    this.inside = null;
    this.apply();
  }

  async lookInside() {
    const text = this.search.value.trim();
    if (!text) return;
    const keys = new Set();
    try {
      for (const [run, one] of this.app.data.runs.entries()) {
        const progress = (done, all) => fill(this.count, `looking inside the games of ${one.key}: step ${done} of ${all}`);
        fill(this.count, `looking inside the games of ${one.key}…`);
        for (const [step, slot] of await this.app.source.find(run, text, this.shelf.steps(run), progress)) keys.add(`${run}/${step}/${slot}`);
      }
    } catch (error) {
      this.app.failed(error);
      return;
    }
    if (this.search.value.trim() !== text) return;
    wanted.text = text;
    this.inside = keys;
    this.apply();
  }

  apply() {
    this.found = chosen(this.shelf, this.inside);
    const all = this.shelf.entries.length;
    const hint = wanted.text && !this.inside ? h("button.link", { type: "button", onclick: () => this.lookInside() }, "look inside whole games (Enter)") : null;
    const clear = this.found.length < all ? h("button.link", { type: "button", onclick: () => this.clear() }, "show all") : null;
    fill(this.count, this.found.length === all ? plural(all, "game") : `${this.found.length.toLocaleString("en-US")} of ${plural(all, "game")}`, hint, clear);
    this.inner.style.setProperty("height", `${this.found.length * ROW_HEIGHT}px`);
    this.draw();
  }

  clear() {
    Object.assign(wanted, { run: "", from: "", to: "", outcome: "", reason: "", origin: "", hops: "", paid: ["", ""], rate: ["", ""], text: "" });
    this.search.value = "";
    this.inside = null;
    this.refresh();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_HEIGHT) - 4);
    const last = Math.min(this.found.length, first + Math.ceil((this.scroller.clientHeight || 600) / ROW_HEIGHT) + 8);
    const rows = [];
    for (let place = first; place < last; place++) rows.push(this.row(this.found[place], place));
    fill(this.inner, rows);
  }

  row(entry, place) {
    const get = (name) => this.shelf.get(entry, name);
    const key = keyOf(this.shelf, entry);
    const current = key === this.current;
    const row = h(
      current ? "a.row.current" : "a.row",
      { href: this.app.linkTo(entry), role: "option", "aria-selected": String(current), tabindex: -1 },
      h("span.text", {}, get("question") || h("em", {}, `no question, for “${get("answer")}”`)),
      h(
        "span.meta",
        {},
        this.app.data.runs.length > 1 && runDot(this.app.data, entry[0]),
        h("span.place", {}, `${entry[1]} · ${get("slot")}`),
        pill(get("outcome"), get("reason")),
        get("hops") !== null && h("span", {}, plural(get("hops"), "hop")),
        ["reused", "composed"].includes(get("origin")) && h("span", {}, get("origin")),
        get("judged") > 0 && solved(get("right"), get("judged")),
      ),
    );
    row.style.setProperty("top", `${place * ROW_HEIGHT}px`);
    return row;
  }

  /** Marks a game and brings it into view. */
  mark(key) {
    this.current = key;
    const place = this.found.findIndex((entry) => keyOf(this.shelf, entry) === key);
    const top = place * ROW_HEIGHT;
    const box = this.scroller;
    if (place >= 0 && (top < box.scrollTop || top + ROW_HEIGHT > box.scrollTop + box.clientHeight)) box.scrollTop = top - box.clientHeight / 3;
    this.draw();
  }

  /** The game before or after the current one in the list; null at the ends. */
  neighbour(by) {
    const place = this.found.findIndex((entry) => keyOf(this.shelf, entry) === this.current);
    if (place < 0) return by > 0 ? this.found[0] || null : null;
    return this.found[place + by] || null;
  }

  controls() {
    const { shelf, app } = this;
    const listed = (label, name, options) => {
      const select = h("select", { onchange: () => this.set(name, select.value) }, h("option", { value: "" }, "any"), options.map(([value, text]) => h("option", { value: String(value), selected: String(value) === String(wanted[name]) }, text)));
      return h("label", {}, h("span", {}, label), select);
    };
    const counted = (name, text = (value) => value) => shelf.counts(name).map(([value, count]) => [value, `${text(value)} (${count.toLocaleString("en-US")})`]);
    const bound = (name, place, hint) => {
      const get = () => (place === null ? wanted[name] : wanted[name][place]);
      const set = (value) => (place === null ? (wanted[name] = value) : (wanted[name][place] = value));
      const steps = name === "from" || name === "to";
      const input = h("input", { type: "number", step: steps ? 1 : 0.1, value: get(), placeholder: hint, "aria-label": `${LABELS[name]} ${hint}` });
      input.addEventListener("input", debounce(() => (set(input.value), this.apply()), 150));
      return input;
    };
    const orders = [["step", "oldest first"], ["newest", "newest first"], ["hardest", "hardest first"], ["paid", "best paid first"]];
    const order = h("select", { onchange: () => this.set("order", order.value) }, orders.map(([value, text]) => h("option", { value, selected: value === wanted.order }, text)));
    const active = Object.entries(wanted).some(([name, value]) => !["text", "order"].includes(name) && value.length && [].concat(value).some((one) => one !== ""));
    const details = h(
      "details",
      { open: this.filters.firstElementChild?.open || active },
      h("summary", {}, "Filter and sort"),
      h(
        "div.grid",
        {},
        app.data.runs.length > 1 && listed("Run", "run", app.data.runs.map((run, place) => [place, run.key])),
        listed("Outcome", "outcome", counted("outcome")),
        listed("Reason", "reason", counted("reason", reasonName)),
        listed("Hops", "hops", counted("hops")),
        listed("Question is", "origin", counted("origin")),
        h("label", {}, h("span", {}, "Order"), order),
        h("div.range", {}, h("span", {}, "Step"), bound("from", null, "from"), bound("to", null, "to")),
        h("div.range", {}, h("span", {}, "Solve rate"), bound("rate", 0, "from"), bound("rate", 1, "to")),
        h("div.range", {}, h("span", {}, "Proposer’s reward"), bound("paid", 0, "from"), bound("paid", 1, "to")),
      ),
    );
    return details;
  }

  set(name, value) {
    wanted[name] = value;
    this.apply();
  }
}

const LABELS = { from: "Step", to: "Step", rate: "Solve rate", paid: "Proposer’s reward" };

function pill(outcome, reason) {
  const text = outcome === "valid" ? "valid" : reason ? reasonName(reason) : outcome;
  return h(`span.pill.${outcome}`, { title: REASONS[reason] || "" }, outcome === "void" ? `void: ${text}` : text);
}

/** How many attempts were right, as dots where they are few. */
function solved(right, judged) {
  const text = `${right} of ${judged} attempts right`;
  if (judged > 10) return h("span.solved", { title: text }, `${right}/${judged}`);
  const dots = Array.from({ length: judged }, (_, i) => h(i < right ? "i.right" : "i", {}));
  return h("span.solved", { title: text, role: "img", "aria-label": text }, dots);
}

const REASONS = {
  format: "a turn ended without a complete action",
  forged_information: "the policy wrote a tag that only the environment may write",
  budget_tokens: "no room for another token",
  budget_searches: "one search too many",
  budget_query: "a query of too many tokens",
  budget_answer: "an answer of too many tokens",
  budget_prompt: "the answer or the question does not fit into a prompt",
  refused: "the search server refuses the query",
  unverified: "the documents do not support the ground truth",
  closed_book: "answerable from memory, without any search",
  empty_question: "the question is empty",
  no_search: "the proposer did not search",
  short_question: "the question is too short",
  long_question: "the question is too long",
  spoiler: "the question gives its answer away",
  repeated_query: "a query was repeated",
};

function reasonName(reason) {
  return reason.replaceAll("_", " ");
}
