// Head: what ran, what must be known of the numbers, and the findings.

function drawHead() {
  document.title = `${data.title}: heap`;
  find("title").textContent = data.title;
  const began = data.started_ms > 0 ? `, began ${new Date(data.started_ms).toISOString().replace(/\.\d+Z/, "Z")}` : "";
  const interval = data.is_exact ? "" : `; ± is the ${data.percent} % interval`;
  find("about").textContent = `${data.who}${began}, ${seconds(data.duration_s)}: ${data.precision}${interval}`;
  if (data.command !== "") find("about").title = data.command;
  for (const note of data.notes) find("notes").append(element("li", {}, note));
  drawFindings();
}

function drawFindings() {
  const { summary, on_length, forecast, until_s, list, left_out } = data.findings;
  find("summary").textContent = [summary, on_length, forecast].filter(Boolean).join(" ");
  const end = until_s === null ? "" : `The verdicts are of the time up to ${seconds(until_s)}: then the program frees its memory, because it ends.`;
  find("until").textContent = end;
  const troubles = list.filter(({ is_trouble }) => is_trouble);
  const others = list.filter(({ is_trouble }) => !is_trouble);
  find("troubles").append(...troubles.map(findingOf));
  find("others").start = troubles.length + 1;
  find("others").append(...others.map(findingOf));
  find("besides").hidden = others.length === 0;
  find("besides").open = troubles.length === 0;
  const more = left_out > 0 ? `, and ${count(left_out)} more that heapprof explain -n 0 shows` : "";
  find("besides-what").textContent = `besides: ${others.length} that need no looking into${more}`;
}

function findingOf(finding) {
  const { verdict, is_trouble, site, evidence, command } = finding;
  const { name, where, module } = wordsOf(data, data.frames[site]);
  const item = element("li");
  const button = element("button", { type: "button", class: "site", title: [name, where, module].filter(Boolean).join("\n") });
  const badge = element("span", { class: is_trouble ? "verdict trouble" : "verdict" }, verdict);
  button.append(badge, " ", element("span", { class: "function" }, name), " ", element("span", { class: "where" }, endOf(where || module, 60)));
  button.addEventListener("click", () => openFinding(finding));
  item.append(button, element("p", {}, evidence));
  if (command !== null) item.append(element("code", { class: "command" }, command));
  return item;
}

/** Shows the site of a finding in the view that shows most of it. */
function openFinding({ verdict, site, highest_s }) {
  pickNothing();
  state.by = "";
  state.unit = state.unit === "blocks" ? "blocks" : "bytes";
  const end = data.findings.until_s === null ? last : momentAt(data, data.findings.until_s);
  /** A peak near the highest point of the site, or else the nearest moment. */
  const atHighest = () => {
    const near = momentAt(data, highest_s);
    const isNear = ({ moment }) => moment > last && Math.abs(stepOf(data, moment) - stepOf(data, near)) <= 1;
    return peaks.find(isNear)?.moment ?? near;
  };
  state.a = 0;
  state.b = end;
  if (["leak", "growing block", "backlog"].includes(verdict)) state.view = "grown";
  else if (verdict === "churn") state.view = "allocated";
  else {
    state.view = "in_use";
    if (verdict === "burst" || verdict === "periodic") state.b = atHighest();
  }
  const groups = groupsOfLine(data, "", site);
  const amount = () => groups.reduce((sum, group) => sum + numberOf(group, state.view, state.unit, state.a, state.b).value, 0);
  // A site that has given back all by then is still among those that allocated.
  if (amount() <= 0) [state.view, state.a, state.b] = ["allocated", 0, last];
  pickLines([site]);
  showLine(site);
  draw();
  find("sites").scrollIntoView({ block: "start" });
  find("sites").querySelector("tr.chosen")?.focus({ preventScroll: true });
}
