// Filters and the list. Which of them are set is kept in the address, so that a link opens the same again.

const PAGE = 100;
const FILTERS = [
  ["outcome", "Outcome"], ["severity", "Severity"], ["rule", "Rule not held"],
  ["case", "Case"], ["disposition", "Disposition"], ["persona", "Persona"],
];

const NAMES = ["q", ...FILTERS.map(([name]) => name), "c"];
let state = readState();

function readState() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(NAMES.map(name => [name, given.get(name) ?? ""]));
}

function address(changed) {
  const kept = Object.entries({ ...state, ...changed }).filter(([, value]) => value !== "");
  return `#${new URLSearchParams(kept)}`;
}

let writing = 0;

function filterBy(changed) {
  state = { ...state, ...changed };
  shownRows = PAGE;
  drawList();
  // Browsers refuse an address that changes with every key.
  clearTimeout(writing);
  writing = setTimeout(() => history.replaceState(null, "", address({})), 200);
}

function valuesOf(one, filter) {
  switch (filter) {
    case "rule": return one.rules.map(([rule]) => rule);
    case "severity": return one.rules.filter(([, , status]) => status === "fail").map(([, grade]) => String(grade));
    default: return [one[filter]];
  }
}

const VALUES = conversations.map(one => FILTERS.map(([name]) => new Set(valuesOf(one, name))));
const PLAIN = conversations.map(one =>
  [one.id, one.case, one.persona, one.disposition, one.outcome, one.line, ...one.rules.map(([rule]) => rule)]
    .join("\n").toLowerCase());

/** Those that match, and for each filter how many there would be with each of its values. */
function matching() {
  if (state.q && words === null) loadWords();
  const sought = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = FILTERS.map(([name]) => state[name]);
  const counts = FILTERS.map(() => new Map());
  const found = [];
  conversations.forEach((one, position) => {
    if (!sought.every(word => PLAIN[position].includes(word) || words?.[position].includes(word))) return;
    const missed = wanted.flatMap((value, at) => value && !VALUES[position][at].has(value) ? [at] : []);
    if (missed.length === 0) found.push(one);
    counts.forEach((count, at) => {
      if (missed.length > 1 || (missed.length === 1 && missed[0] !== at)) return;
      for (const value of VALUES[position][at]) count.set(value, (count.get(value) ?? 0) + 1);
    });
  });
  return { found, counts };
}

const selects = new Map();
let search, count, rows, more, clear;
let shownRows = PAGE;

function buildList() {
  const form = element("form", { class: "filters", role: "search", "aria-label": "Filter conversations" });
  search = element("input", { type: "search", id: "filter-q", autocomplete: "off", spellcheck: "false" });
  search.addEventListener("input", () => filterBy({ q: search.value }));
  search.addEventListener("keydown", event => {
    if (event.key === "ArrowDown") { event.preventDefault(); rows.querySelector("a")?.focus(); }
  });
  const field = (name, label, control) =>
    element("div", { class: `field field-${name}` }, element("label", { for: `filter-${name}` }, label), control);
  form.append(field("q", "Search in what was said, called and found", search));
  for (const [at, [name, label]] of FILTERS.entries()) {
    const values = [...new Set(VALUES.flatMap(sets => [...sets[at]]))];
    values.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const options = values.map(value => element("option", { value }, value));
    const select = element("select", { id: `filter-${name}` }, element("option", { value: "" }, "any"), options);
    select.addEventListener("change", () => filterBy({ [name]: select.value }));
    selects.set(name, { select, options });
    form.append(field(name, label, select));
  }
  form.addEventListener("submit", event => { event.preventDefault(); rows.querySelector("a")?.focus(); });
  count = element("p", { class: "count", role: "status" });
  clear = button("Clear filters", () => {
    filterBy(Object.fromEntries(NAMES.map(name => [name, ""])));
    search.focus();
  }, { class: "quiet" });
  rows = element("ol", { class: "rows", "aria-label": "Conversations, the gravest first" });
  rows.addEventListener("keydown", moveInList);
  more = button("", () => {
    const next = shownRows;
    shownRows += PAGE;
    drawList();
    focusRow(next);
  }, { class: "more" });
  const list = byId("list");
  list.append(form, element("div", { class: "counts" }, count, clear), rows, more);
  list.hidden = false;
}

function drawList() {
  const { found, counts } = matching();
  if (search.value !== state.q) search.value = state.q;
  for (const [at, [name]] of FILTERS.entries()) {
    const { select, options } = selects.get(name);
    for (const option of options) {
      const label = `${option.value} (${(counts[at].get(option.value) ?? 0).toLocaleString("en")})`;
      if (option.label !== label) option.label = label;
    }
    select.value = state[name];
    select.classList.toggle("set", state[name] !== "");
  }
  const all = counted(conversations.length, "conversation");
  count.textContent = found.length === conversations.length
    ? all : `${found.length.toLocaleString("en")} of ${all}`;
  clear.hidden = !NAMES.some(name => name !== "c" && state[name] !== "");
  rows.replaceChildren(...found.slice(0, shownRows).map(rowOf));
  if (rows.firstChild) rows.querySelector("a").tabIndex = 0;
  if (!found.length) rows.append(element("li", { class: "none" }, "No conversation matches these filters."));
  more.hidden = found.length <= shownRows;
  more.textContent = `Show ${Math.min(PAGE, found.length - shownRows)} more of ${found.length - shownRows}`;
}

function rowOf(one) {
  const broken = one.rules.slice(0, 3).map(([rule]) => rule).join(", ");
  const rest = one.rules.length > 3 ? ` and ${one.rules.length - 3} more` : "";
  // One stop for the Tab key; the arrow keys go on from there.
  return element("li", {}, element("a", { class: "row", href: address({ c: one.id }), tabindex: "-1" },
    outcomeChip(one.outcome), " ",
    element("span", { class: "who" },
      element("strong", {}, one.id), " ", element("span", {}, one.case), " ",
      soft("persona ", one.persona, " · ", one.disposition)), " ",
    element("span", { class: "what" },
      one.severity ? severityChip(one.severity) : null, one.severity ? " " : null,
      broken ? element("span", { class: "broken" }, broken, rest) : null, " ",
      one.outcome === "pass" ? null : element("span", { class: "line soft" }, sentence(one.line)))));
}

function focusRow(at) {
  const links = rows.querySelectorAll("a");
  const link = links[Math.max(0, Math.min(at, links.length - 1))];
  if (!link) return;
  for (const other of rows.querySelectorAll("a[tabindex='0']")) other.tabIndex = -1;
  link.tabIndex = 0;
  link.focus();
}

function moveInList(event) {
  const links = [...rows.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
  if (to === undefined || at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  if (to < 0) search.focus();
  else if (to >= links.length && !more.hidden) more.click();
  else focusRow(to);
}
