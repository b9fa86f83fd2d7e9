// Where games come from: chunks in this page, files beside it, or `ssp view`.

const BODIES_KEPT = 40; // steps whose games stay unpacked

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** Keeps the last few results of a function of one key. */
function remembered(limit, make) {
  const kept = new Map();
  const remember = async (key) => {
    const found = kept.get(key) || make(key);
    kept.delete(key);
    kept.set(key, found);
    if (kept.size > limit) kept.delete(kept.keys().next().value);
    try {
      return await found;
    } catch (error) {
      kept.delete(key);
      throw error;
    }
  };
  remember.forget = () => kept.clear();
  return remember;
}

/** Chunks in the page itself, or in a folder beside it that script elements can load. */
class Stored {
  constructor(data) {
    this.beside = data.beside;
    this.waiting = new Map();
    this.body = remembered(BODIES_KEPT, (key) => this.chunk(key));
    window.ssp = { arrived: (name, text) => this.waiting.get(name)?.(text) };
  }

  /** Rows of the list by step. */
  index(run) {
    return this.chunk(`index_${run}`);
  }

  games(run, step) {
    return this.body(`step_${step}_${run}`);
  }

  /** Places of the games that hold a text; says how far it is. */
  async find(run, text, steps, progress) {
    const wanted = text.toLowerCase();
    const found = [];
    for (const [place, step] of steps.entries()) {
      const chunk = await this.chunk(`step_${step}_${run}`);
      for (const game of chunk.games) if (holds(game, wanted)) found.push([step, game.slot]);
      progress(place + 1, steps.length);
    }
    return found;
  }

  async chunk(name) {
    const here = document.getElementById(name);
    return unpacked(here ? here.textContent : await this.loaded(name));
  }

  loaded(name) {
    return new Promise((resolve, reject) => {
      this.waiting.set(name, resolve);
      const failed = () => reject(new Error(`${this.beside}/${name}.js is missing: keep that folder beside this page`));
      document.head.append(h("script", { src: `${this.beside}/${name}.js`, onerror: failed }));
    });
  }
}

/** Whether any text of a game holds this one; token ids are no text. */
function holds(value, wanted) {
  if (typeof value === "string") return value.toLowerCase().includes(wanted);
  if (value === null || typeof value !== "object") return false;
  return Object.entries(value).some(([key, item]) => !PACKED.has(key) && holds(item, wanted));
}

const PACKED = new Set(["ids", "logprobs"]);

/** What `ssp view` answers. */
class Served {
  constructor() {
    this.body = remembered(BODIES_KEPT, (path) => this.get(path));
    this.tag = null;
  }

  async get(path) {
    let reply;
    try {
      reply = await fetch(path);
    } catch (error) {
      throw new Error("ssp view does not answer any more: is it still running?", { cause: error });
    }
    const answer = await reply.json();
    if (!reply.ok) throw new Error(answer.error);
    return answer;
  }

  /** The state if it has changed, else null. */
  async changed() {
    let reply;
    try {
      const headers = this.tag ? { "If-None-Match": this.tag } : {};
      reply = await fetch("api/state", { headers, cache: "no-store" });
    } catch (error) {
      throw new Error("ssp view does not answer any more: is it still running?", { cause: error });
    }
    if (reply.status === 304) return null;
    const answer = await reply.json();
    if (!reply.ok) throw new Error(answer.error);
    this.tag = reply.headers.get("ETag");
    return answer;
  }

  index(run, steps) {
    return this.get(`api/index?run=${run}&steps=${steps.join(",")}`);
  }

  games(run, step, tokens) {
    return this.body(`api/games?run=${run}&step=${step}${tokens ? "&tokens=1" : ""}`);
  }

  find(run, text) {
    return this.get(`api/find?run=${run}&text=${encodeURIComponent(text)}`);
  }
}
