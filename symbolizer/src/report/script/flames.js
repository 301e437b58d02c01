// Flames: the flame graph of all stacks.

const ROW = 18;

/** A colour for a function, the same on every page; light enough for dark text. */
function colourOf(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return `hsl(${90 + (hash % 110)} ${38 + (hash >> 8) % 22}% ${66 + (hash >> 16) % 12}%)`;
}

let root = null;

function drawFlames(all) {
  // Where one looks into is found again in the new tree by its way.
  const way = [];
  for (let node = state.focus; node?.parent; node = node.parent) way.unshift(nameOf(data, node.frame));
  root = treeOf(data, all.numbers, state.from_callee);
  let focus = root;
  for (const name of way) focus = focus.children.get(name) ?? focus;
  state.focus = focus === root ? null : focus;
  const wide = find("flames").clientWidth;
  const boxes = layout(root, focus, 1.5 / Math.max(wide, 1));
  const deepest = Math.max(0, ...boxes.map(({ depth }) => depth));
  const hadFocus = find("flames").contains(document.activeElement);
  const made = boxes.map((box) => frameOf(box, wide, all.total));
  find("flames").style.height = `${(deepest + 1) * ROW}px`;
  find("flames").replaceChildren(...made);
  const first = made[boxes.findIndex(({ node }) => node === focus)];
  first?.setAttribute("tabindex", "0");
  if (hadFocus) first?.focus();
  find("out").hidden = state.focus === null;
  drawFound(all);
}

/** The element of a frame. */
function frameOf({ node, depth, left, width, is_outer }, wide, total) {
  const name = node.frame === null ? `all: ${shown(node.value)}` : functionOf(data, node.frame);
  const box = element("div", { tabindex: "-1", role: "treeitem", "aria-level": depth + 1, "aria-label": `${name}, ${shown(node.value)}` }, width * wide > 24 ? name : "");
  box.style.left = `${(100 * left).toFixed(4)}%`;
  box.style.width = `${(100 * width).toFixed(4)}%`;
  box.style.top = `${depth * ROW}px`;
  if (node.frame === null) box.classList.add("all");
  else box.style.background = colourOf(name);
  box.classList.toggle("outer", is_outer);
  box.classList.toggle("hit", state.hits[node.frame] === true);
  node.box = box;
  const open = ({ shiftKey }) => {
    hideTip();
    if (shiftKey && node.frame !== null) return leaveOut(name);
    state.lines = [];
    state.focus = node === root ? null : node;
    state.picked = node === root ? null : { groups: groupsOf(data, node, state.from_callee), name };
    draw();
  };
  box.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault());
  box.addEventListener("click", open);
  box.addEventListener("mousemove", (event) => showTip(event.clientX, event.clientY, wordsOfNode(node, total)));
  box.addEventListener("mouseleave", hideTip);
  box.addEventListener("focus", () => {
    const { left, bottom } = box.getBoundingClientRect();
    showTip(Math.max(left, 0), bottom, wordsOfNode(node, total));
  });
  box.addEventListener("blur", hideTip);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return open(event);
    }
    const next = neighbourOf(node, event.key);
    if (next === undefined) return;
    event.preventDefault();
    next?.box?.focus();
  });
  return box;
}

/** The node that an arrow leads to; null: there is none; undefined: it is no arrow. */
function neighbourOf(node, key) {
  if (key === "ArrowUp") return node.parent ?? null;
  const drawnChildren = (of) => [...of.children.values()].filter(({ box }) => box?.isConnected).sort((x, y) => y.value - x.value);
  if (key === "ArrowDown") return drawnChildren(node)[0] ?? null;
  if (key !== "ArrowLeft" && key !== "ArrowRight") return undefined;
  if (!node.parent) return null;
  const all = drawnChildren(node.parent);
  return all[all.indexOf(node) + (key === "ArrowLeft" ? -1 : 1)] ?? null;
}

function wordsOfNode(node, total) {
  const lines = [];
  if (node.frame === null) lines.push("all");
  else {
    const { name, where, module } = wordsOf(data, data.frames[node.frame]);
    lines.push(name, where, module);
  }
  const own = node.own > 0 && node.children.size > 0 ? `, ${shown(node.own)} of it its own` : "";
  lines.push(`${shown(node.value)} ${plusMinus(node.variance)} (${percent(node.value, total.value)})${own}`);
  return lines;
}

/** Leaves out all stacks that pass a function. */
function leaveOut(name) {
  if (!state.left_out.includes(name)) state.left_out = [...state.left_out, name];
  pickNothing();
  searchAnew();
  draw();
}

/** What is left out, each with a button that brings it back. */
function drawLeftOut() {
  const buttons = state.left_out.map((name) => {
    const button = element("button", { type: "button", title: `bring back: ${name}` }, `without ${name.length > 40 ? `${name.slice(0, 39)}…` : name} ×`);
    button.addEventListener("click", () => {
      state.left_out = state.left_out.filter((other) => other !== name);
      searchAnew();
      draw();
    });
    return button;
  });
  find("left-out").replaceChildren(...buttons);
}

/** How much passes through what was searched for; where the rest is not shown, what was not searched. */
function drawFound({ numbers, total }) {
  const field = find("search");
  field.setAttribute("aria-invalid", String(state.fault !== ""));
  if (state.fault !== "" || state.finder === null) {
    find("found").textContent = state.fault;
    return;
  }
  const parts = [];
  if (state.found === "mark") {
    let value = 0;
    let variance = 0;
    data.groups.forEach((group, index) => {
      if (!isFound(data, group, state.hits, state.finder)) return;
      value += numbers[index].value;
      variance += numbers[index].variance;
    });
    parts.push(`“${state.search}”: ${shown(value)} ${plusMinus(variance)} (${percent(value, total.value) || "0%"})`);
  }
  const merged = data.groups.reduce((sum, group) => sum + (group.stacks ?? 0), 0);
  if (merged > 0) parts.push(`of ${count(merged)} stacks with less only the site was searched (--stacks keeps more)`);
  find("found").textContent = parts.join("; ");
}
