// A compact layout of a beam tree: a column per step, the best hypothesis a straight line on top, branches below it.
//
// The tree is cut into chains: a node, its best child, that one's best child, and so on. A chain is a straight line in the
// first row that is free in all of its columns. Chains are placed from the right to the left, so that no line crosses another.

// nodes: [{ id, parent, step, score, … }], parents first; best: Set of ids that go first; hidden(node): leave it out.
// -> { places: Map id -> { column, row }, rows, columns, children: Map id -> [ids, best first] }
export function layoutTree(nodes, best, hidden = () => false) {
  const shown = nodes.filter((node) => node.parent === null || !hidden(node));
  const children = childrenOf(shown, best), places = new Map(), free = []; // free: by column, the first row that is free
  const pending = [{ id: shown[0].id, above: -1 }]; // chains to be placed, the next one last
  const byId = new Map(shown.map((node) => [node.id, node]));
  while (pending.length) {
    const { id, above } = pending.pop(), chain = chainFrom(id, children), first = byId.get(id).step, last = first + chain.length - 1;
    let row = above + 1;
    for (let column = first; column <= last; column++) row = Math.max(row, free[column] ?? 0);
    for (let column = first; column <= last; column++) free[column] = row + 1;
    chain.forEach((one, index) => places.set(one, { column: first + index, row }));
    // the branches of the last node are placed first: pushed last; of one node, the best branch is the nearest
    for (const one of chain) for (const branch of children.get(one).slice(1).reverse()) pending.push({ id: branch, above: row });
  }
  return { places, rows: Math.max(...free), columns: free.length, children };
}

// The first child continues the line of its parent: it is on the best path, or kept, or has the best score. Of the others
// the shortest subtrees come first: what ends at once is right below its parent, and long branches leave it room.
function childrenOf(nodes, best) {
  const found = new Map(nodes.map((node) => [node.id, []])), byId = new Map(nodes.map((node) => [node.id, node])), reach = new Map();
  for (const node of [...nodes].reverse()) { // the last step that its subtree reaches; children come after their parents
    reach.set(node.id, Math.max(node.step, reach.get(node.id) ?? 0));
    if (node.parent !== null) reach.set(node.parent, Math.max(reach.get(node.id), reach.get(node.parent) ?? 0));
  }
  for (const node of nodes) if (node.parent !== null && found.has(node.parent)) found.get(node.parent).push(node.id);
  const score = (a, b) => byId.get(b).score - byId.get(a).score;
  const leads = (a, b) => best.has(b) - best.has(a) || isKept(byId.get(b)) - isKept(byId.get(a)) || score(a, b);
  for (const list of found.values()) {
    const [first, ...others] = list.sort(leads);
    if (first !== undefined) list.splice(0, list.length, first, ...others.sort((a, b) => reach.get(a) - reach.get(b) || score(a, b)));
  }
  return found;
}

const isKept = (node) => node.outcome !== "pruned";

function chainFrom(id, children) {
  const chain = [id];
  for (let next = children.get(id)[0]; next !== undefined; next = children.get(next)[0]) chain.push(next);
  return chain;
}

// Ids from the root to a node.
export function pathTo(nodes, id) {
  const found = [];
  for (let at = id; at !== null && at !== undefined; at = nodes[at].parent) found.unshift(at);
  return found;
}
