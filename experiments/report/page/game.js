// One game as a page to read.

/** The page of a game. */
function gamePage(app, entry, game, rules) {
  const attempts = game.trajectories.filter((play) => play.role === "solver");
  const of = (role) => game.trajectories.find((play) => play.role === role);
  return h(
    "article.game",
    {},
    heading(app, entry, game, attempts),
    of("proposer") && proposing(game, of("proposer"), rules),
    verifying(app, entry, game, of("verifier"), rules),
    closedBook(game, of("closed_book"), rules),
    attempts.length > 0 && solving(game, attempts, rules),
    paying(game, attempts, rules),
    exactly(app, entry, game, rules),
  );
}

function heading(app, entry, game, attempts) {
  const truth = game.start.truth;
  const copied = h("span.quiet", { "aria-live": "polite" });
  const copy = async () => {
    await navigator.clipboard.writeText(location.href);
    copied.textContent = "copied";
  };
  return h(
    "header",
    {},
    h(
      "p.meta",
      {},
      app.data.runs.length > 1 && [runDot(app.data, entry[0]), h("span", {}, app.data.runs[entry[0]].key)],
      h("span", {}, `step ${entry[1]}, slot ${game.slot}`),
      pill(game.outcome, game.reason),
      game.hops !== null && h("span", {}, plural(game.hops, "hop")),
      game.question_group !== null && h("span", {}, game.question_group),
      ["reused", "composed"].includes(game.start.origin) && h("span", {}, `${game.start.origin} question`),
      navigator.clipboard && h("button.link", { type: "button", onclick: copy }, "copy link"),
      copied,
    ),
    h("h2", {}, game.question || h("em", {}, "There is no question.")),
    h(
      "dl.facts",
      {},
      fact("Ground truth", truth.answer, truth.aliases.length ? `also ${truth.aliases.join(", ")}` : null),
      rightAnswers(game),
      fact("Solve rate", game.solve_rate === null ? "–" : share(game.solve_rate), attempts.length ? solved(attempts.filter(isRight).length, attempts.filter((play) => !play.outage).length) : null),
      fact("Proposer’s reward", share(game.proposer_reward)),
      fact("Weights", `after ${plural(game.weights_version, "step")}`),
    ),
    game.outcome === "invalid" && h("p.verdict.no", {}, h("b", {}, `Invalid: ${reasonName(game.reason)}.`), ` ${sentence(REASONS[game.reason] || "a filter of its own")}`),
    game.outage && h("p.verdict.void", {}, h("b", {}, `Void: ${game.outage.service} failed.`), ` ${game.outage.what}`, game.outage.calls ? ` (${plural(game.outage.calls, "call")})` : ""),
  );
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function fact(name, value, more = null) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value, more && h("small", {}, more)));
}

function rightAnswers(game) {
  if (game.right_answers === null) return null;
  const others = game.right_answers.filter((answer) => answer !== game.start.truth.answer);
  if (game.truly_correct && !others.length) return fact("The world says", "right, and the only answer");
  if (game.truly_correct) return fact("The world says", "ambiguous", `right as well: ${others.join(", ")}`);
  return fact("The world says", "wrong", others.length ? `right: ${others.join(", ")}` : "no answer is right");
}

function isRight(play) {
  return Boolean(play.verdict && play.verdict.correct);
}

function section(name, title, note, ...children) {
  return h(`section.${name}`, {}, h("h3", {}, title, note && h("span.note", {}, note)), children);
}

function proposing(game, play, rules) {
  const asked = game.start.asked_searches;
  const note = [`the answer is “${game.start.truth.answer}”`, asked ? `${plural(asked, "search", "searches")} asked for` : null].filter(Boolean).join("; ");
  return section("proposer", "Proposer", note, conversation(game, play, rules), ending(play));
}

/** How a trajectory ended, where that is not by what it was to give. */
function ending(play) {
  if (play.outage) return h("p.verdict.void", {}, h("b", {}, `Void: ${play.outage.service} failed.`), ` ${play.outage.what}`);
  if (play.ending === "action") return null;
  return h("p.verdict.no", {}, h("b", {}, `Ended: ${reasonName(play.ending)}.`), ` ${sentence(REASONS[play.ending] || play.ending)}`);
}

// -- verification ------------------------------------------------------------------------------

function verifying(app, entry, game, play, rules) {
  if (!game.verification && !game.materials && !play) return null;
  const noise = new Map(game.noise.map((item) => [item.document.id, item]));
  const found = game.trajectories[0]?.searches.flatMap((search) => search.documents) || [];
  const byId = new Map([...found, ...game.noise.map((item) => item.document)].map((document) => [document.id, document]));
  const read = game.materials || [];
  const mixed = read.filter((id) => noise.has(id) && !game.evidence.includes(id)).length;
  const note = read.length ? `read ${plural(read.length, "document")}: ${read.length - mixed} of evidence, ${mixed} of noise` : "";
  const documents = read.map((id) => {
    const item = game.evidence.includes(id) ? null : noise.get(id);
    const document = byId.get(id) || { id, title: id, text: "" };
    const label = item ? h("span.tag.noise", {}, "noise · ", origin(app, entry, game, item.origin)) : h("span.tag.evidence", {}, "evidence");
    return h(item ? "details.document.noise" : "details.document", {}, h("summary", {}, h("b", {}, title(document)), label), h("p", {}, document.text));
  });
  const verdict = game.verification;
  return section(
    "verification",
    "Verification",
    note,
    h("div.documents", {}, documents),
    play && conversation(game, play, rules),
    play && ending(play),
    verdict && h(verdict.correct ? "p.verdict.yes" : "p.verdict.no", {}, h("b", {}, verdict.correct ? "Accepted." : "Rejected."), verdict.detail ? ` ${sentence(verdict.detail)}` : ""),
  );
}

/** Where a noise document comes from; "game 3" counts from the first of its env runner. */
function origin(app, entry, game, text) {
  const match = /^game (\d+)$/.exec(text);
  if (!match) return text === "near" ? "near the question" : `from the ${text}`;
  const slot = game.first_slot + Number(match[1]);
  return [h("span", {}, "from "), h("a", { href: app.link(entry[0], entry[1], slot) }, `game ${slot}`)];
}

function closedBook(game, play, rules) {
  if (!play) return null;
  const verdict = game.closed_book;
  const text = verdict?.correct ? "It knew the answer: the question needs no search." : "It did not know the answer.";
  return section("closed-book", "From memory", "before any search", conversation(game, play, rules), ending(play), verdict && h(verdict.correct ? "p.verdict.no" : "p.verdict.yes", {}, h("b", {}, text)));
}

// -- attempts ----------------------------------------------------------------------------------

function solving(game, attempts, rules) {
  const groups = together(attempts);
  const right = attempts.filter(isRight).length;
  const cards = groups.map(({ play, numbers }) => {
    const kind = play.outage ? "void" : isRight(play) ? "yes" : "no";
    const word = { yes: "right", no: "wrong", void: "void" }[kind];
    const head = h(
      "header",
      {},
      h("h4", {}, numbers.length > 1 ? `Attempts ${spans(numbers)}` : `Attempt ${numbers[0]}`),
      h(`span.mark.${kind}`, {}, word),
    );
    const detail = play.verdict?.detail ? h("p.quiet", {}, sentence(play.verdict.detail)) : null;
    const more = numbers.length > 1 ? h("p.quiet", {}, "Word for word the same.") : null;
    return h(`div.attempt.${kind}`, {}, head, conversation(game, play, rules), ending(play), detail, more);
  });
  return section("solver", "Solver", `${right} of ${plural(attempts.length, "attempt")} right`, h("div.attempts", {}, cards));
}

/** [1, 2, 3, 5] as "1–3, 5". */
function spans(numbers) {
  const parts = [];
  for (const each of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

function paying(game, attempts, rules) {
  if (game.proposer_reward === null && game.solver_reward === null) return section("rewards", "Rewards", "", h("p", {}, "Nobody is paid."));
  const p = game.solve_rate;
  const rule = rules.parts.proposer_reward;
  const why = game.outcome === "invalid" ? "for an invalid question" : p === null ? "" : `${rule} with p = ${share(p)}`;
  return section(
    "rewards",
    "Rewards",
    "",
    h(
      "dl.facts",
      {},
      fact("Proposer", game.proposer_reward === null ? "–" : share(game.proposer_reward), why),
      fact("Solver, on average", game.solver_reward === null ? "–" : share(game.solver_reward), attempts.length ? attempts.map((play) => (play.outage ? "void" : share(play.reward, 1))).join("  ") : "was not asked"),
    ),
  );
}

// -- exactly what was read and written ---------------------------------------------------------

function exactly(app, entry, game, rules) {
  const names = playNames(game.trajectories);
  const body = h("div", {});
  const details = h("details.section.exact", {}, h("summary", {}, h("h3", {}, "Exact text and tokens")), body);
  details.addEventListener("toggle", () => {
    if (!details.open || body.childNodes.length) return;
    fill(body, names.map((name, i) => exactPlay(app, entry, game, game.trajectories[i], name, rules)));
  });
  return details;
}

function playNames(plays) {
  let attempts = 0;
  return plays.map((play) => (play.role === "solver" ? `solver ${++attempts}` : play.role.replace("_", " ")));
}

function exactPlay(app, entry, game, play, name, rules) {
  const place = game.trajectories.indexOf(play);
  const host = h("div", {}, segments(play));
  const counts = own(play).reduce((sum, written) => sum + written.tokens, 0);
  const button = h("button.link", { type: "button", onclick: () => showTokens(app, entry, place, host, button) }, SHOW_TOKENS);
  const can = app.data.tokens && rules.tokens;
  const why = rules.tokens ? "tokens are not in this page (ssp report --tokens, or ssp view)" : "the run recorded no tokens";
  return h("div.exactly", {}, h("h4", {}, name, h("span.note", {}, `${plural(counts, "token")} by the policy`)), can ? button : h("span.note", {}, why), host);
}

function segments(play) {
  return play.segments.map((segment) => h(segment.by === "policy" ? "pre.own" : "pre.given", {}, segment.text));
}

const SHOW_TOKENS = "show tokens, loss mask and log-probabilities";

async function showTokens(app, entry, place, host, button) {
  button.disabled = true;
  button.textContent = "reading the tokens…";
  let chunk;
  try {
    chunk = await app.body(entry, true);
  } catch (error) {
    app.failed(error);
    button.disabled = false;
    button.textContent = SHOW_TOKENS;
    return;
  }
  const slot = app.shelf.get(entry, "slot");
  const game = chunk.games.find((one) => one.slot === slot);
  const untold = chunk.untold && h("p.note", {}, `Ids instead of texts: ${chunk.untold}`);
  fill(host, untold, tokensOf(game.trajectories[place], chunk.pieces));
  button.replaceWith(h("span.note", {}, "marked: what the policy wrote (loss mask 1), the stronger the less likely it was"));
}
