// Puts the page together: views, games, keys, light and dark, and news from `ssp view`.

const POLL = 2000; // milliseconds between two questions to ssp view
const STEPS_AT_ONCE = 50;
const $ = (selector) => document.querySelector(selector);

async function unpacked(name) {
  const bytes = Uint8Array.from(atob($(`#${name}`).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function asked(path) {
  const reply = await fetch(path).catch(() => {
    throw new Error("ssp view does not answer any more: is it still running?");
  });
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

class App {
  constructor(data) {
    this.data = data;
    this.list = new GameList(this);
    this.reader = h("div.reader", {});
    this.versions = [];
    this.chunks = new Map();
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.key(event));
    this.loaded = this.load();
    this.loaded.catch((error) => this.failed(error));
    this.route();
    if (data.live) this.loaded.finally(() => setTimeout(() => this.poll(), POLL));
  }

  link(game) {
    return `#${encodeURIComponent(this.data.runs[game.run].key)}/${game.step}/${game.index}`;
  }

  /** Shows what the address names. */
  route() {
    const match = /^#(.+)\/(\d+)\/(\d+)$/.exec(location.hash);
    const id = match || location.hash === "#games" ? "#games" : location.hash === "#settings" ? "#settings" : "#";
    for (const tab of document.querySelectorAll(".top nav a")) tab.toggleAttribute("aria-current", tab.getAttribute("href") === id);
    document.body.dataset.view = match ? "game" : id.slice(1) || "overview";
    $(".status").replaceChildren(...(this.data.live ? [h("span.live", {}, "live")] : []), this.data.state);
    if (id === "#games") this.showGames(match);
    else if (id === "#settings") this.showSettings();
    else this.showOverview();
    if (!match) scrollTo(0, 0);
  }

  // Templates escaped all that comes from a run.
  showOverview() {
    $("main").innerHTML = this.data.overview;
    curves(this.data, $("section.curves"));
  }

  showSettings() {
    $("main").innerHTML = this.data.settings;
    const rows = [...document.querySelectorAll("table.all tbody tr")];
    $(".narrow").addEventListener("input", (event) => {
      const wanted = event.target.value.toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  }

  async showGames(match) {
    if (!this.reader.isConnected) $("main").replaceChildren(h("div.games", {}, this.list.element, this.reader));
    const here = location.hash;
    try {
      await this.loaded;
      if (here !== location.hash) return;
      this.list.mark(match && here);
      if (!match) {
        const keys = [["j", "next game"], ["k", "previous game"], ["/", "find"], ["Esc", "back to the list"]];
        this.reader.replaceChildren(h("dl.keys.empty", {}, keys.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)))));
        return;
      }
      const run = this.data.runs.findIndex((one) => one.key === decodeURIComponent(match[1]));
      const html = await this.game(run, match[2], match[3]);
      if (here !== location.hash) return;
      const step = (by, text) => h("a.step", { href: this.list.neighbour(by) && this.link(this.list.neighbour(by)) }, text);
      const article = h("div", {});
      article.innerHTML = html;
      this.reader.replaceChildren(h("div.bar", {}, h("a.back", { href: "#games" }, "all games"), step(-1, "← previous"), step(1, "next →")), article);
      this.reader.scrollTop = 0;
      scrollTo(0, 0);
    } catch (error) {
      this.failed(error);
    }
  }

  /** A game as HTML: of a chunk in this page, or from ssp view. */
  async game(run, step, index) {
    if (this.data.live) return asked(`api/game?run=${run}&step=${step}&index=${index}`);
    const name = `step_${step}_${run}`;
    if (!this.chunks.has(name) && $(`#${CSS.escape(name)}`)) this.chunks.set(name, unpacked(name));
    const games = await this.chunks.get(name);
    if (!games?.[index]) throw new Error(`There is no game ${index} of step ${step} in this run.`);
    return games[index];
  }

  key(event) {
    const typing = /^(INPUT|SELECT)$/.test(event.target.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else if (document.body.dataset.view === "game") location.hash = "games";
    } else if (!typing && event.key === "/") {
      event.preventDefault();
      location.hash = "games";
      setTimeout(() => this.list.find.focus(), 50);
    } else if (!typing && "jk".includes(event.key) && this.reader.isConnected) {
      const game = this.list.neighbour(event.key === "j" ? 1 : -1);
      if (!game) return;
      // Marked at once: the next key may come before the browser has told of the new address.
      this.list.mark(this.link(game));
      location.hash = this.link(game).slice(1);
    }
  }

  failed(error) {
    $(".banner").hidden = false;
    $(".banner").textContent = error.message;
  }

  /** Reads the rows of the list: all of them, or those of steps that are new or have changed. */
  async load() {
    for (const [run, { steps }] of this.data.runs.entries()) {
      this.list.steps[run] ??= new Map();
      const now = new Map(steps);
      const known = (this.versions[run] ??= new Map()); // a sweep begins further runs
      for (const step of known.keys()) if (!now.has(step)) (known.delete(step), this.list.steps[run].delete(step));
      const missing = [...now.keys()].filter((step) => known.get(step) !== now.get(step));
      for (let i = 0; i < missing.length; i += this.data.live ? STEPS_AT_ONCE : missing.length) {
        const part = missing.slice(i, i + STEPS_AT_ONCE);
        this.list.put(run, await (this.data.live ? asked(`api/index?run=${run}&steps=${part}`) : unpacked(`index_${run}`)));
        for (const step of missing) if (!this.data.live || part.includes(step)) known.set(step, now.get(step));
      }
    }
    if (!this.list.all) this.list.put(0, {});
  }

  /** Asks for news, and shows them without moving the page. */
  async poll() {
    try {
      const state = document.hidden ? null : await asked("api/state");
      if (state && JSON.stringify(state) !== JSON.stringify(this.data)) {
        Object.assign(this.data, state);
        const at = scrollY;
        if (document.body.dataset.view === "overview") this.route();
        scrollTo(0, at);
        await this.load();
      }
      $(".banner").hidden = true;
    } catch (error) {
      this.failed(error);
    }
    setTimeout(() => this.poll(), POLL);
  }
}

/** Light or dark: as the system is, until the button says otherwise. */
function themes() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  $(".theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
    root.dataset.theme = dark ? "light" : "dark";
    redraw();
  });
  system.addEventListener("change", redraw);
}

themes();
unpacked("data").then(
  (data) => new App(data),
  (error) => ($("main").textContent = `This page cannot be shown: ${error.message}`),
);
