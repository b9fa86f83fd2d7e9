// A trajectory as a conversation: thoughts, searches, what was found, the question or the answer.

/** Cuts what the policy wrote at its tags: [{kind, text}]; kind "plain" is outside of any tag. */
function blocks(text, tags) {
  const names = { [tags.think]: "think", [tags.search]: "search", [tags.question]: "question", [tags.answer]: "answer", [tags.information]: "forged" };
  for (const name of tags.also || []) names[name] = "aside";
  const all = Object.keys(names).map((name) => name.replace(/[-]/g, "\\$&")).join("|");
  const tag = new RegExp(`<(${all})>([\\s\\S]*?)(?:</\\1>|$)`, "g");
  const found = [];
  let at = 0;
  for (const match of text.matchAll(tag)) {
    found.push({ kind: "plain", text: text.slice(at, match.index) });
    const closed = match[0].endsWith(`</${match[1]}>`);
    found.push({ kind: names[match[1]], text: match[2], name: match[1], closed });
    at = match.index + match[0].length;
  }
  found.push({ kind: "plain", text: text.slice(at) });
  return found.filter((block) => block.kind !== "plain" || block.text.trim());
}

/** What the policy wrote, turn by turn. */
function own(play) {
  return play.segments.filter((segment) => segment.by === "policy");
}

/** The turns of a trajectory, one after the other. */
function conversation(game, play, rules) {
  let search = 0;
  return own(play).map((written) => {
    const parts = blocks(written.text, rules.tags).map((block) => shown(block));
    const asked = play.searches[search];
    const follows = asked && blocks(written.text, rules.tags).some((block) => block.kind === "search");
    if (follows) search++;
    return h("div.turn", {}, parts, follows ? foundBy(asked) : null);
  });
}

const SPEECH = { think: "thinks", search: "searches", question: "asks", answer: "answers", forged: "forged tag", aside: "notes" };

function shown(block) {
  const text = block.text.trim();
  if (block.kind === "plain") return h("p.plain", { title: "outside of any tag" }, text);
  const open = block.closed ? null : h("span.warn", {}, "not closed");
  return h(`div.say.${block.kind}`, {}, h("span.who", {}, SPEECH[block.kind]), h("p", {}, text || "(nothing)"), open);
}

function foundBy(search) {
  if (!search.documents.length) return h("p.found.none", {}, "nothing was found");
  const titles = search.documents.map(title);
  return h(
    "details.found",
    {},
    h("summary", {}, h("span.who", {}, "found"), h("span", {}, titles.join(" · "))),
    search.documents.map((document) => passage(document)),
  );
}

function title(document) {
  return document.title || document.id;
}

function passage(document, label = null) {
  const score = document.score;
  return h(
    "article.passage",
    {},
    h("h5", {}, title(document), label, score !== null && score !== undefined && h("span.score", { title: "score of the retriever" }, score.toFixed(2))),
    h("p", {}, document.text),
  );
}

/** Same words, same searches, same verdict: attempts that need be read only once. */
function alike(play) {
  return JSON.stringify([play.segments.map((segment) => segment.text), play.searches, play.ending, play.verdict, play.reward, play.outage]);
}

function together(plays) {
  const groups = new Map();
  plays.forEach((play, i) => {
    const key = alike(play);
    if (!groups.has(key)) groups.set(key, { play, numbers: [] });
    groups.get(key).numbers.push(i + 1);
  });
  return [...groups.values()];
}

// -- tokens ------------------------------------------------------------------------------------

/** Every token of a trajectory: what the loss mask covers, and how likely the policy's were. */
function tokensOf(play, pieces) {
  const spans = play.segments.flatMap((segment) => segment.ids.map((id, i) => token(pieces[id], id, segment.by === "policy", segment.logprobs?.[i])));
  return h("div.tokens", {}, spans);
}

function token(piece, id, own, logprob) {
  const text = piece ? piece.replaceAll("\n", "⏎\n") : `⟨${id}⟩`;
  if (!own) return h("span.given", { title: `id ${id}; loss mask 0` }, text);
  const chance = Math.exp(logprob);
  const span = h("span.own", { title: `id ${id}; loss mask 1; log-probability ${logprob.toFixed(4)} (p = ${chance.toPrecision(3)})` }, text);
  span.style.setProperty("--doubt", String(Math.min(1, -logprob / 3).toFixed(3)));
  return span;
}
