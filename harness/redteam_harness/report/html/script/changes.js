// The change set of a conversation.

const NEAR = 40;
const SIGNS = { insert: "+", update: "~", delete: "−", create: "+", alter: "~", drop: "−" };
const DONE = {
  insert: "added", update: "changed", delete: "deleted", create: "created", alter: "altered", drop: "dropped",
};

function changes(found) {
  if (found === null) return element("p", { class: "soft" }, "No change set was taken.");
  const rest = Object.entries(found.more).map(([what, times]) => `${times.toLocaleString("en")} more ${what}`);
  return [element("p", { class: "in-all" }, found.summary),
    found.tables.map(tableOf),
    found.sequences.length ? sequences(found.sequences) : null,
    found.objects.length ? [element("h4", {}, "Schema objects"), found.objects.map(objectOf)] : null,
    found.writes.length ? [element("h4", {}, "Written, and no longer there"),
      element("ul", {}, found.writes.map(writeOf))] : null,
    rest.length ? element("p", { class: "soft" }, `… and ${rest.join(", ")} in changes.json`) : null];
}

function sequences(found) {
  const rows = found.map(item => element("tr", {}, element("th", { scope: "row" }, element("code", {}, item.name)),
    element("td", {}, value(item.old, "del")), element("td", {}, value(item.new, "ins"))));
  return grid("Sequences", ["Sequence", "Before", "After"], element("tbody", {}, rows));
}

function writeOf(write) {
  const which = write.gone === write.rows ? "" : ` ${write.gone} of them`;
  return element("li", {}, `${counted(write.rows, "row")} ${DONE[write.op]} in `, element("code", {}, write.table),
    write.by ? ` by ${write.by}` : null, soft(`:${which} put back or written over later`));
}

function grid(caption, heads_, ...bodies) {
  const heads = heads_.map(name => element("th", { scope: "col" }, name));
  return element("table", { class: "rows-changed" }, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, heads)), bodies);
}

function tableOf(table) {
  const notes = [];
  if (table.more) notes.push(`… ${table.more.toLocaleString("en")} rows more in changes.json`);
  if (table.omitted) notes.push(`… ${counted(table.omitted, "row")} more were too many to keep`);
  if (table.found) notes.push(table.found);
  // Where rows were only added, or only deleted, the other side is empty throughout.
  const ops = new Set(table.rows.map(row => row.op));
  const alone = ops.size === 1 && !ops.has("update") ? [...ops][0] : null;
  const heads = alone ? ["Column", alone === "insert" ? "After" : "Before"] : ["Column", "Before", "After"];
  const caption = [element("code", {}, table.name), " ", soft(table.counts)];
  return [grid(caption, heads, table.rows.map(row => rowGroup(row, heads.length))),
    notes.map(note => element("p", { class: "soft" }, note))];
}

function rowGroup(row, width) {
  const key = row.key.length
    ? row.key.flatMap(([name, value_], at) => [at ? ", " : "", name, " ", element("code", {}, value_)]) : "(no key)";
  const by = row.outside ? element("span", { class: "tag outside" }, row.by)
    : row.call === null ? (row.by ? soft(`by ${row.by}`) : null)
    : button(`by ${row.by}`, press => show([`e${row.call}`], press.currentTarget, row.by), { class: "by" });
  return element("tbody", { id: row.id, tabindex: "-1", class: row.op },
    element("tr", { class: "head" }, element("th", { scope: "rowgroup", colspan: width },
      element("span", { class: `op ${row.op}` }, hidden(SIGNS[row.op]), " ", DONE[row.op]), " ", key, " ", by,
      flags(row.id))),
    row.cells.map(cell => cellLines(row.op, cell, width)),
    row.nulls ? wide(width, soft(`${counted(row.nulls, "column")} null`)) : null,
    row.same.length ? wide(width, element("details", {},
      element("summary", {}, counted(row.same.length, "unchanged column")),
      element("dl", { class: "arguments" }, row.same.map(cell => [element("dt", {}, breakable(cell.name)),
        element("dd", {}, value(cell.new, ""))])))) : null);
}

/** A name that may be broken after its underscores. */
const breakable = name => name.split(/(?<=_)/).flatMap((part, at) => at ? [element("wbr"), part] : [part]);

const wide = (width, content) => element("tr", {}, element("td", { colspan: width }, content));

function cellLines(op, cell, width) {
  const name = extra => element("th", { scope: "row" }, breakable(cell.name), extra);
  if (cell.parts.length) {
    const part = (said, tag) => said === null ? soft("not there") : long(element(tag, {}, said));
    return [cell.parts.map(([path, old, now]) => element("tr", {}, name([" ", element("code", {}, path)]),
      element("td", {}, part(old, "del")), element("td", {}, part(now, "ins")))),
      cell.more ? wide(width, soft(`… ${counted(cell.more, "part")} more`)) : null];
  }
  const side = (found, tag) => found === null
    ? (width === 3 ? element("td", {}, element("span", { class: "unseen" }, "no row")) : null)
    : element("td", {}, value(found, tag));
  return element("tr", {}, name(), side(cell.old, "del"), side(cell.new, "ins"));
}

/** A cell's value; what differs is in `ins` or `del`, so that it is told without colour, and aloud. */
function value([before, differs, after, isNull], tag) {
  const whole = isNull ? element("em", { class: "null" }, differs) : differs;
  if (!tag) return long([before, whole, after]);
  if (differs === "") return long(element(tag, {}, before, after));
  const near = [before.length > NEAR ? `…${before.slice(-NEAR)}` : before, element(tag, {}, differs),
    after.length > NEAR ? `${after.slice(0, NEAR)}…` : after];
  return long([before, element(tag, {}, whole), after], near);
}

function objectOf(item) {
  const lines = item.lines.map(([sign, said]) => {
    const tag = { "+": "ins", "-": "del" }[sign] ?? "span";
    return [element(tag, {}, `${sign} ${said}`.trimEnd()), "\n"];
  });
  return [element("p", {}, element("span", { class: "op" }, hidden(SIGNS[item.op]), " ", DONE[item.op]), " ",
    element("code", {}, item.title)),
    lines.length ? element("pre", {}, lines, item.more ? soft(`… ${counted(item.more, "line")} more`) : null) : null];
}
