// Puts the page together: navigation, links, keys, light and dark, and news from `ssp view`.

const POLL = 2000; // milliseconds between two questions to ssp view
const STEPS_AT_ONCE = 100;

class App {
  constructor(data) {
    this.data = data;
    this.source = data.live ? new Served() : new Stored(data);
    this.shelf = new Shelf(data);
    this.versions = data.runs.map(() => new Map());
    this.main = h("main", { id: "main", tabindex: -1 });
    this.banner = h("div.banner", { role: "alert", hidden: true });
    this.status = h("span.status", { "aria-live": "off" });
    this.tabs = h("nav", { "aria-label": "Views" });
    this.shown = null;
    this.list = null;
    fill(document.getElementById("app"), h("a.skip", { href: "#main", onclick: (event) => (event.preventDefault(), this.main.focus()) }, "Skip to the content"), this.top(), this.banner, this.main);
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.key(event));
  }

  top() {
    const { runs } = this.data;
    const name = runs.length === 1 ? runs[0].key : plural(runs.length, "run");
    document.title = `${name} · search self-play`;
    return h("header.top", {}, h("h1", {}, h("a", { href: "#" }, name)), this.tabs, this.status, themeButton());
  }

  drawTop(current) {
    const tab = (id, text) => h("a", { href: `#${id}`, "aria-current": current === id ? "page" : null }, text);
    fill(this.tabs, tab("", "Overview"), tab("games", "Games"), tab("settings", "Settings"));
    const { runs, live } = this.data;
    const going = runs.filter((run) => !run.finished);
    const words = runs.length === 1 ? `${runs[0].preset || ""} · ${runs[0].world || ""} · ${state(runs[0])}` : going.length ? `${going.length} going on or stopped` : "finished";
    fill(this.status, live && h("span.live", { title: "this page follows the runs" }, "live"), words);
  }

  // -- where we are ----------------------------------------------------------------------------

  link(run, step, slot) {
    return `#${encodeURIComponent(this.data.runs[run].key)}/${step}/${slot}`;
  }

  linkTo(entry) {
    return this.link(entry[0], entry[1], this.shelf.get(entry, "slot"));
  }

  /** Shows what the address names. */
  route() {
    const hash = location.hash.slice(1);
    const match = /^(.+)\/(\d+)\/(\d+)$/.exec(hash);
    if (match) this.showGame(decodeURIComponent(match[1]), Number(match[2]), Number(match[3]));
    else if (hash === "games") this.showList();
    else if (hash === "settings") this.show("settings", () => settings(this.data));
    else this.show("", () => overview(this.data));
  }

  show(id, make) {
    this.shown = id;
    this.drawTop(id);
    document.body.dataset.view = id || "overview";
    fill(this.main, make());
    scrollTo(0, 0);
  }

  async showList() {
    this.openShelf();
    document.body.dataset.view = "games";
    this.list.mark(null);
    const hints = [["j", "next game"], ["k", "previous game"], ["/", "find"], ["Esc", "back to the list"]];
    fill(this.reader, h("div.empty", {}, h("p", {}, this.shelf.entries.length ? "Choose a game from the list." : this.loading ? "Reading the list of games…" : "There are no games."), h("dl.keys", {}, hints.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text))))));
  }

  openShelf() {
    if (this.shown === "games") return;
    this.shown = "games";
    this.drawTop("games");
    this.list = this.list || new GameList(this);
    this.reader = h("div.reader", {});
    fill(this.main, h("div.games", {}, this.list.element, this.reader));
    scrollTo(0, 0);
  }

  async showGame(key, step, slot) {
    this.openShelf();
    document.body.dataset.view = "game";
    const run = this.data.runs.findIndex((one) => one.key === key);
    const asked = location.hash;
    await this.loaded;
    const entry = (this.shelf.bySteps[run]?.get(step) || []).find((one) => this.shelf.get(one, "slot") === slot);
    if (!entry) {
      fill(this.reader, h("div.empty", {}, h("p", {}, `There is no game ${slot} of step ${step} in ${key}.`), this.back()));
      return;
    }
    this.list.mark(`${run}/${step}/${slot}`);
    try {
      const chunk = await this.body(entry, false);
      if (location.hash !== asked) return;
      const game = chunk.games.find((one) => one.slot === slot);
      fill(this.reader, this.bar(), gamePage(this, entry, game, chunk.rules[game.rules]));
      this.reader.scrollTop = 0;
      scrollTo(0, 0);
    } catch (error) {
      this.failed(error);
    }
  }

  body(entry, tokens) {
    return this.source.games(entry[0], entry[1], tokens);
  }

  bar() {
    const step = (by, text, key) => {
      const entry = this.list.neighbour(by);
      return h("a.step", { href: entry ? this.linkTo(entry) : null, "aria-disabled": entry ? null : "true", title: `${text} game (${key})` }, by < 0 ? "← " : "", text, by > 0 ? " →" : "");
    };
    return h("div.bar", {}, this.back(), step(-1, "previous", "k"), step(1, "next", "j"));
  }

  back() {
    return h("a.back", { href: "#games" }, "all games");
  }

  key(event) {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else if (document.body.dataset.view === "game") location.hash = "games";
    } else if (!typing && event.key === "/") {
      event.preventDefault();
      if (this.shown !== "games") location.hash = "games";
      requestAnimationFrame(() => this.list?.search.focus());
      setTimeout(() => this.list?.search.focus(), 60);
    } else if (!typing && (event.key === "j" || event.key === "k") && this.shown === "games") {
      const entry = this.list.neighbour(event.key === "j" ? 1 : -1);
      if (!entry) return;
      // Marked at once: the next key may come before the browser has told of the new address.
      this.list.mark(keyOf(this.shelf, entry));
      location.hash = this.linkTo(entry).slice(1);
    }
  }

  /** Says what went wrong, where everybody sees it. */
  failed(error) {
    this.banner.hidden = false;
    fill(this.banner, error.message || String(error));
  }

  // -- games and news --------------------------------------------------------------------------

  /** Reads the rows of the list. */
  load() {
    this.loading = true;
    this.loaded = (this.data.live ? this.follow() : this.loadStored()).then(() => {
      this.loading = false;
      if (document.body.dataset.view === "games") this.showList();
    });
    return this.loaded.catch((error) => this.failed(error));
  }

  async loadStored() {
    for (const [place, run] of this.data.runs.entries()) {
      if (run.steps.length) this.shelf.put(place, await this.source.index(place));
    }
    this.shelf.sort();
    this.list?.refresh();
  }

  /** Fetches the rows of steps that are new or have changed. */
  async follow() {
    for (const [place, run] of this.data.runs.entries()) {
      const known = this.versions[place];
      const now = new Map(run.steps);
      const stale = [...known.keys()].filter((step) => now.get(step) !== known.get(step));
      for (const step of stale) {
        known.delete(step);
        this.shelf.drop(place, step);
      }
      if (stale.length) this.source.body.forget();
      const missing = [...now.keys()].filter((step) => !known.has(step));
      for (let i = 0; i < missing.length; i += STEPS_AT_ONCE) {
        const part = missing.slice(i, i + STEPS_AT_ONCE);
        const rows = await this.source.index(place, part);
        this.shelf.put(place, rows);
        for (const step of part) if (step in rows) known.set(step, now.get(step));
        this.shelf.sort();
        this.list?.refresh();
      }
      if (stale.length && !missing.length) {
        this.shelf.sort();
        this.list?.refresh();
      }
    }
  }

  async poll() {
    try {
      const state = document.hidden ? null : await this.source.changed();
      if (state) {
        Object.assign(this.data, state);
        this.drawTop(this.shown);
        if (this.shown === "") {
          const at = scrollY;
          const open = [...this.main.querySelectorAll("details")].map((one) => one.open);
          fill(this.main, overview(this.data));
          this.main.querySelectorAll("details").forEach((one, i) => (one.open = open[i] || false));
          scrollTo(0, at);
        }
        await this.follow();
      }
      this.banner.hidden = true;
    } catch (error) {
      this.failed(error);
    }
    setTimeout(() => this.poll(), POLL);
  }
}

// -- light and dark ----------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

function themeButton() {
  const button = h("button.theme", { type: "button" });
  const set = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Colours: ${theme}. Change`);
    button.title = `Colours: ${theme}`;
    button.dataset.theme = theme;
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(button.dataset.theme) + 1) % THEMES.length];
    set(next);
    memory.set("theme", next);
  });
  const saved = memory.get("theme");
  set(THEMES.includes(saved) ? saved : "auto");
  return button;
}

async function start() {
  const app = new App(await unpacked(document.getElementById("data").textContent));
  const loading = app.load();
  app.route();
  await loading;
  if (app.data.live) setTimeout(() => app.poll(), POLL);
}

start().catch((error) => {
  fill(document.getElementById("app"), h("p.banner", {}, `This page cannot be shown: ${error.message}`));
});
