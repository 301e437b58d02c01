// The tree of all stacks, and the rectangles of its picture.

/** The tree of all stacks, from the root or, turned around, from the function that allocated. */
function treeOf(data, numbers, from_callee) {
  const root = { frame: null, value: 0, variance: 0, own: 0, children: new Map() };
  data.groups.forEach((group, index) => {
    const { value, variance } = numbers[index];
    if (value <= 0) return;
    let node = root;
    const add = (to) => {
      to.value += value;
      to.variance += variance;
    };
    add(node);
    const stack = from_callee ? [...group.stack].reverse() : group.stack;
    for (const frame of stack) {
      const name = nameOf(data, frame);
      let child = node.children.get(name);
      if (child === undefined) {
        child = { frame, value: 0, variance: 0, own: 0, children: new Map(), parent: node };
        node.children.set(name, child);
      }
      node = child;
      add(node);
    }
    node.own += value;
  });
  return root;
}

/** The rectangles of a tree: each with its node, its depth, and its left edge and width as parts of the whole. Those narrower than `least` are
 * left out, with all that they call. Above `focus` its callers are as wide as the picture. */
function layout(root, focus, least) {
  const boxes = [];
  const outer = [];
  for (let node = focus.parent; node; node = node.parent) outer.unshift(node);
  outer.forEach((node, depth) => boxes.push({ node, depth, left: 0, width: 1, is_outer: true }));
  const waiting = [{ node: focus, depth: outer.length, left: 0 }];
  while (waiting.length > 0) {
    const { node, depth, left } = waiting.pop();
    const width = focus.value > 0 ? node.value / focus.value : 0;
    if (width < least) continue;
    boxes.push({ node, depth, left, width, is_outer: false });
    let next = left;
    const children = [...node.children.values()].sort((x, y) => y.value - x.value);
    for (const child of children) {
      waiting.push({ node: child, depth: depth + 1, left: next });
      next += child.value / focus.value;
    }
  }
  return boxes;
}

/** The groups that a node is made of: those whose stack begins, from that end, as the way to the node does. */
function groupsOf(data, node, from_callee) {
  const way = [];
  for (let step = node; step.parent; step = step.parent) way.unshift(nameOf(data, step.frame));
  const belongs = (group) => {
    const stack = from_callee ? [...group.stack].reverse() : group.stack;
    return stack.length >= way.length && way.every((name, depth) => nameOf(data, stack[depth]) === name);
  };
  return data.groups.filter(belongs);
}
