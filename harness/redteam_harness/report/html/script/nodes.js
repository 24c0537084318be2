// Building what is shown: all data of databases, agents and people becomes text nodes, never markup.

const LONG = 400;
const MARKS = { pass: "✓", fail: "✗", unclear: "?", derailed: "↯" };
const byId = id => document.getElementById(id);

/** Text in its own writing direction, so that it cannot turn around what stands beside it. */
function text(words) {
  const node = document.createTextNode(words);
  if (/^[\x00-\x7f]*$/.test(words)) return node;
  const own = document.createElement("bdi");
  own.append(node);
  return own;
}

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  add(made, children);
  return made;
}

function add(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child != null && child !== "") parent.append(child instanceof Node ? child : text(String(child)));
  }
}

function button(label, action, attributes) {
  const made = element("button", { type: "button", ...attributes }, label);
  made.addEventListener("click", action);
  return made;
}

const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const soft = (...children) => element("span", { class: "soft" }, ...children);
const severityChip = severity => element("span", { class: `chip severity-${severity}` }, `severity ${severity}`);
const hidden = mark => element("span", { class: "mark", "aria-hidden": "true" }, mark);

function outcomeChip(outcome) {
  const kind = outcome === "pass" || outcome === "fail" ? outcome : "other";
  return element("span", { class: `chip outcome-${kind}` }, hidden(MARKS[outcome] ?? "!"), " ", outcome);
}

/** A sentence; names that it has in backticks are set as code. */
const sentence = said => said.split(/`([^`]+)`/).map((part, at) => at % 2 ? element("code", {}, part) : part);

/** A text in pieces of which every second was quoted by a judge. */
const pieces = parts => parts.map((part, at) => at % 2 ? element("mark", {}, part) : part);

/** A value of any length: what is long is folded, and can be unfolded. Folded, an excerpt stands for it. */
function long(content, excerpt) {
  const value = element("span", { class: "value lines" }, content);
  const size = value.textContent.length;
  if (size <= LONG) return value;
  const short = element("span", { class: "value lines folded" }, excerpt ?? `${value.textContent.slice(0, LONG)}…`);
  const unfold = `Show all ${size.toLocaleString("en")} characters`;
  const fold = button(unfold, () => {
    value.hidden = !value.hidden;
    short.hidden = !value.hidden;
    fold.setAttribute("aria-expanded", String(!value.hidden));
    fold.textContent = value.hidden ? unfold : "Show less";
  }, { class: "quiet small", "aria-expanded": "false" });
  value.hidden = true;
  return [short, value, fold];
}
