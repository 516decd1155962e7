// Keyboard: one tab stop per list or grid, arrow keys within it.

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// Give a container one tab stop. `items()` are its elements in order; `columns()` how many are in a row (0: one line, in
// which both pairs of arrows walk). In a right-to-left container the horizontal arrows turn round.
export function roving(container, items, columns = () => 0) {
  const focus = (index) => {
    const all = items();
    if (!all.length) return;
    const next = all[Math.max(0, Math.min(all.length - 1, index))];
    for (const item of all) item.tabIndex = item === next ? 0 : -1;
    next.focus();
  };
  container.addEventListener("keydown", (event) => {
    const all = items(), at = all.indexOf(event.target.closest?.("[tabindex],button,a"));
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Home" || event.key === "End") { event.preventDefault(); return focus(event.key === "Home" ? 0 : all.length - 1); }
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const turned = getComputedStyle(container).direction === "rtl" ? -1 : 1, wide = columns();
    const next = at + step[0] * (wide || 1) + step[1] * turned;
    if (next >= 0 && next < all.length) focus(next);
  });
  container.addEventListener("focusin", (event) => {
    const all = items(), item = event.target.closest?.("[tabindex],button,a");
    if (all.includes(item)) for (const one of all) one.tabIndex = one === item ? 0 : -1;
  });
  const renew = () => items().forEach((item, index) => { item.tabIndex = index ? -1 : 0; });
  renew();
  return { focus, renew };
}
