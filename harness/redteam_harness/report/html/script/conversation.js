// One conversation, and the way from a finding to its evidence and back.

const OPEN = 4;
const suite = document.title;
const article = byId("conversation");
const overview = byId("overview");
let opened = null;

async function route() {
  clearTimeout(writing);
  state = readState();
  const position = positions.get(state.c);
  if (state.c && position === undefined) {
    history.replaceState(null, "", address({ c: "" }));
    state = readState();
  }
  if (!state.c) return closeConversation();
  await openConversation(conversations[position]);
}

function closeConversation() {
  const last = opened;
  opened = null;
  hideBack();
  article.hidden = true;
  article.replaceChildren();
  overview.hidden = false;
  document.title = suite;
  if (last === null) {
    drawList();
    // A link to a filter leads to what it finds.
    if (FILTERS.some(([name]) => state[name])) go(byId("list-title"), "start");
    return;
  }
  const at = matching().found.findIndex(one => one.id === last);
  while (at >= shownRows) shownRows += PAGE;
  drawList();
  focusRow(at);
  document.activeElement.scrollIntoView({ block: "center" });
}

async function openConversation(one) {
  if (opened === one.id) return;
  opened = one.id;
  hideBack();
  const title = element("h2", { id: "conversation-title", tabindex: "-1" },
    outcomeChip(one.outcome), " ", element("span", {}, one.id), " ", element("span", { class: "case" }, one.case));
  const body = element("div", { class: "body" }, element("p", { class: "soft" }, "Opening …"));
  article.replaceChildren(steps(one), element("header", {}, title), body);
  article.hidden = false;
  overview.hidden = true;
  document.title = `${one.id} · ${suite}`;
  scrollTo(0, 0);
  title.focus({ preventScroll: true });
  const drawn = await bodyOf(one);
  if (opened === one.id) body.replaceChildren(...drawn);
}

function steps(one) {
  const { found } = matching();
  const at = found.findIndex(other => other.id === one.id);
  const step = (label, other) => other
    ? element("a", { href: address({ c: other.id }) }, label) : element("span", { class: "soft" }, label);
  return element("nav", { class: "steps", "aria-label": "Conversations" },
    element("a", { href: address({ c: "" }) }, hidden("←"), " All conversations"),
    at < 0 ? null : soft(`${at + 1} of ${found.length}`),
    step("Previous", at > 0 ? found[at - 1] : null), step("Next", found[at + 1]));
}

async function bodyOf(one) {
  if (one.chunk === null) return [element("p", { class: "callout warn" }, "The run's evidence does not hold it.")];
  if (!canUnpack) {
    return [element("p", { class: "callout warn" },
      "This browser cannot open what is packed in this report. Firefox 113, Safari 16.4, Chrome and Edge 86 and " +
      `later can. The same is in the folder conversations/${one.id} beside this file.`)];
  }
  try {
    const data = await evidenceOf(one);
    pointing = new Map();
    return [facts(one, data), ...callouts(data), verdicts(data.verdicts), sides(data)];
  } catch (error) {
    return [element("p", { class: "callout bad" }, `This part of the report is damaged: ${error.message}`)];
  }
}

function facts(one, data) {
  const pair = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
  return element("div", { class: "about" },
    element("dl", { class: "facts" },
      pair("Persona", one.persona), pair("Disposition", one.disposition),
      pair("Length", `${counted(data.count, "turn")}, ${data.seconds.toFixed(1)} s`), pair("Ended", data.ending),
      data.kept ? pair("Kept fork", data.kept) : null),
    data.demand ? element("div", { class: "demand" },
      element("h3", {}, "What the persona wanted"), element("p", { }, data.demand.trim())) : null);
}

function callouts(data) {
  const made = [];
  if (data.attribution) {
    const { rule, severity, text: why, at, consequences, independent } = data.attribution;
    const beside = (label, rules) => rules.length ? element("p", { class: "soft" }, label, rules.join(", ")) : null;
    made.push(element("section", { class: "callout bad", "aria-labelledby": "first-title" },
      element("h3", { id: "first-title" }, "What went wrong first"),
      element("p", {}, severityChip(severity), " ", element("strong", {}, rule)),
      finding({ text: why, at, quote: null }, rule),
      beside("Followed from it: ", consequences), beside("Also broken, for another reason: ", independent)));
  }
  for (const { name, state: became, means, at } of data.attacks) {
    made.push(element("section", { class: `callout ${became === "obeyed" ? "bad" : ""}` },
      element("h3", {}, `Attack: ${became}`), element("p", {}, element("strong", {}, name), `: ${means}.`),
      at.length ? finding({ text: "Where it was attempted", at, quote: null }, name) : null));
  }
  if (data.fault) {
    made.push(element("section", { class: "callout warn" }, element("h3", {}, `Fault: ${data.fault[0]}`),
      element("p", { class: "lines" }, data.fault[1])));
  }
  if (data.late.length) {
    made.push(element("section", { class: "callout warn" }, element("h3", {}, "Still going on when it was over"),
      element("ul", {}, data.late.map(line => element("li", {}, line)))));
  }
  return made;
}

/** Findings by the lines, calls and rows that they point at: what to go back to from there. */
let pointing = new Map();

function verdicts(all) {
  const open = all.filter(one => one.status !== "pass");
  const held = all.filter(one => one.status === "pass");
  return element("section", { class: "verdicts", "aria-labelledby": "verdicts-title" },
    element("h3", { id: "verdicts-title" }, "Verdicts"),
    open.map(verdict),
    held.length ? element("details", open.length ? {} : { open: true },
      element("summary", {}, `${counted(held.length, "rule")} held`), held.map(verdict)) : null,
    all.length ? null : element("p", { class: "soft" }, "No rule was judged."));
}

function verdict(one) {
  const notes = [];
  if (one.vacuous) notes.push("There was nothing on which it could have failed.");
  if (one.fault) notes.push(one.fault === "judge" ? "Its judge could not be heard: not the agent's doing."
    : "The rule itself failed: not the agent's doing.");
  if (one.source !== "assertion") notes.push(source(one));
  const rule = one.rule;
  return element("div", { class: `verdict verdict-${one.status}`, role: "group", "aria-label": `${rule}: ${one.status}` },
    element("h4", {}, outcomeChip(one.status), " ", element("span", { class: "name" }, rule), " ",
      severityChip(one.severity)),
    one.why ? element("p", {}, one.why) : null,
    one.reason && one.status !== "pass" || !one.findings.length ? element("p", { class: "soft" }, one.reason) : null,
    findings(one.findings, rule),
    one.at.length ? finding({ text: `What changed in its tables: ${counted(one.at.length, "row")}`, at: one.at,
      quote: null }, rule) : null,
    notes.length ? element("p", { class: "soft" }, notes.join(" ")) : null);
}

function findings(all, rule) {
  const list = some => element("ul", {}, some.map(one => element("li", {}, finding(one, rule))));
  if (all.length <= OPEN + 1) return all.length ? list(all) : null;
  return [list(all.slice(0, OPEN)), element("details", {},
    element("summary", {}, `${counted(all.length - OPEN, "more finding")}`), list(all.slice(OPEN)))];
}

function source(one) {
  if (one.source === "human") return "A person said so.";
  if (!one.asked) return "A judge said so.";
  const votes = one.asked.votes.map(([answer, times]) => `${times} × ${answer}`).join(", ");
  return `The judge ${one.asked.model} said so${votes ? ` (${votes})` : ""}.`;
}

function finding({ text: said, at, quote }, rule) {
  const cited = quote === null ? null : element("q", {}, quote);
  const words = [element("span", { class: "lines" }, sentence(said)), " ", cited];
  if (!at.length) return element("div", { class: "finding" }, words);
  const made = button([words, " ",
    element("span", { class: "go" }, hidden("→"), " show")], () => show(at, made, rule), { class: "finding" });
  for (const place of at) pointing.set(place, [...pointing.get(place) ?? [], { rule, from: made }]);
  return made;
}

const back = element("div", { class: "back", role: "region", "aria-label": "Evidence", hidden: true });
let returnTo = null;

/** Scroll to the places, mark them, and offer the way back. */
function show(places, from, rule) {
  unmark();
  const found = places.map(byId).filter(Boolean);
  if (!found.length) return;
  for (const place of found) {
    place.classList.add("lit");
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  }
  go(found[0]);
  returnTo = from;
  let at = 0;
  const label = () => `Next (at ${at + 1} of ${found.length})`;
  const next = found.length < 2 ? null : button(label(), () => {
    at = (at + 1) % found.length;
    next.textContent = label();
    go(found[at]);
  });
  const home = button([hidden("↩"), " Back ", element("kbd", {}, "Esc")], goBack, { class: "strong" });
  back.replaceChildren(element("span", {}, "Evidence for ", element("strong", {}, rule)));
  add(back, [next, home]);
  back.hidden = false;
}

function go(target, block = "center") {
  target.focus({ preventScroll: true });
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  target.scrollIntoView({ block, behavior: calm ? "instant" : "smooth" });
}

function unmark() {
  for (const place of article.querySelectorAll(".lit")) place.classList.remove("lit");
}

function hideBack() {
  unmark();
  back.hidden = true;
  returnTo = null;
}

function goBack() {
  const to = returnTo;
  hideBack();
  if (to?.isConnected) go(to);
}

/** Which findings point here; each is a way to it. */
function flags(place) {
  const found = pointing.get(place) ?? [];
  const rules = [...new Map(found.map(one => [one.rule, one])).values()];
  if (!rules.length) return null;
  return element("div", { class: "flags" }, rules.map(({ rule, from }) => button([hidden("⚑"), " ", rule], () => {
    hideBack();
    for (let fold = from.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    go(from);
  }, { class: "flag", title: "Go to the finding", "aria-label": `Go to the finding of ${rule}` })));
}
