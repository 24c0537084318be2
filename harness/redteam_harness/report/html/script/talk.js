// What was said and called in a conversation, by turn.

function sides(data) {
  const written = new Map();
  for (const table of data.changes?.tables ?? []) {
    for (const row of table.rows) {
      if (row.call !== null) written.set(row.call, [...written.get(row.call) ?? [], row.id]);
    }
  }
  return element("div", { class: "sides" },
    element("section", { class: "talk", "aria-labelledby": "talk-title" },
      element("div", { class: "heads" }, element("h3", { id: "talk-title" }, "Transcript"),
        element("h3", { class: "called" }, "Tool calls")),
      data.turns.length ? element("ol", { class: "turns" }, data.turns.map(one => turn(one, written)))
        : element("p", { class: "soft" }, "Nothing was said.")),
    element("section", { class: "changed", "aria-labelledby": "changed-title", tabindex: "0" },
      element("div", { class: "heads" }, element("h3", { id: "changed-title" }, "What changed")),
      changes(data.changes)));
}

function turn(one, written) {
  return element("li", { class: "turn" },
    element("span", { class: "number" }, element("span", { class: "unseen" }, "Turn "), one.turn),
    element("div", { class: "said" }, one.said.map(line)),
    element("div", { class: "tools" }, one.tools.map(event => called(event, written))),
    element("div", { class: "after" }, one.after.map(line)));
}

function line(event) {
  const place = { id: event.at, tabindex: "-1" };
  switch (event.kind) {
    case "user": case "agent":
      return element("div", { ...place, class: `speech ${event.kind}` },
        element("p", { class: "speaker" }, event.kind),
        element("p", { class: "lines", dir: "auto" }, pieces(event.text)),
        flags(event.at));
    case "reveal":
      return element("p", { ...place, class: "note" }, "may now say: ", event.text);
    case "fault": case "late":
      return element("div", { ...place, class: "note alert lines" }, hidden("!"), " ",
        event.kind === "late" ? "late: " : null, event.text, flags(event.at));
    default:
      return element("p", { ...place, class: "note" }, `${event.kind}: `, event.text);
  }
}

function called(event, written) {
  const place = { id: event.at, tabindex: "-1" };
  if (event.kind === "swap") {
    return element("p", { ...place, class: "note" }, hidden("⇄"), " handed over: ", event.text);
  }
  if (event.kind === "printed") {
    return element("p", { ...place, class: "note lines" }, "printed: ", long(event.text));
  }
  const number = Number(event.at.slice(1));
  const wrote = written.get(number);
  const mocked = event.kind === "external";
  return element("div", { ...place, class: `call ${event.kind}` },
    element("p", { class: "name" }, hidden(mocked ? "⇢" : "→"), " ", element("code", {}, event.name),
      mocked ? element("span", { class: "tag" }, "mocked") : null),
    event.fault ? element("p", { class: "note alert" }, "fault: ", event.fault) : null,
    event.arguments.length ? element("dl", { class: "arguments" },
      event.arguments.map(([name, value]) => [element("dt", {}, name), element("dd", {}, long(pieces(value)))])) : null,
    event.result ? result(event.result) : element("p", { class: "note alert" }, "no answer was recorded"),
    wrote ? button(`wrote ${counted(wrote.length, "row")}`, press => show(wrote, press.currentTarget, event.name),
      { class: "by" }) : null,
    flags(event.at));
}

function result(answer) {
  const place = answer.at ? { id: answer.at, tabindex: "-1" } : {};
  if (answer.error !== null) {
    return element("div", { ...place, class: "result error" },
      element("strong", {}, hidden("✗"), " ", answer.error, ": "), long(pieces(answer.text)), flags(answer.at));
  }
  const arrow = [hidden("←"), element("span", { class: "unseen" }, "answered: "), " "];
  if (answer.short === null) {
    return element("div", { ...place, class: "result lines" }, arrow, pieces(answer.text), flags(answer.at));
  }
  return element("div", { ...place, class: "result" },
    element("details", answer.text.length > 1 ? { open: true } : {},
      element("summary", {}, arrow, "answer", element("code", { class: "short" }, answer.short)),
      element("pre", {}, pieces(answer.text))), flags(answer.at));
}
