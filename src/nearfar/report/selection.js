// -- hover and selection --------------------------------------------------------------------------

const tip = byId("tip");
const hover = (i) => {
  if (i === state.hover) return;
  state.hover = i;
  tip.hidden = i < 0;
  if (i >= 0) {
    tip.replaceChildren(...[sized(picture(i), 72)].filter(Boolean), element("strong", { textContent: heading(i) }));
    if (heldOut && heldOut[i]) tip.append(element("div", { className: "small", textContent: "held out" }));
    const words = outcome(i);
    if (words) tip.append(element("div", { textContent: words }));
    if (!images) tip.append(values(i, 6));
    const [x, y] = screen(i);
    const left = x > frame.width / 2 ? x - tip.offsetWidth - 14 : x + 14;
    tip.style.left = `${Math.max(4, Math.min(left, frame.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(y - 20, frame.height - tip.offsetHeight - 4))}px`;
  }
  draw();
};
const detail = byId("detail");
const showDetail = () => {
  const i = state.selected;
  detail.replaceChildren();
  if (i < 0) return;
  detail.append(...[sized(picture(i), 72)].filter(Boolean), element("h3", { textContent: heading(i) }));
  const words = outcome(i);
  if (words) detail.append(element("p", { textContent: words }));
  if (heldOut) detail.append(element("p", { className: "small", textContent: heldOut[i] ? "held out: not among the training rows" : "training row" }));
  detail.append(...neighborLists(i));
  if (canCompare(i, state.partner)) detail.append(pairPanel(i, state.partner));
  if (columns.length) detail.append(values(i, 12));
};
const select = (i, centre) => {
  state.selected = i;
  const nearest = i < 0 ? [] : nearestAt(i, 1);
  state.partner = nearest.length ? nearest[0].row : -1;
  if (i >= 0) {
    if (centre) bringIn(i);
    say([heading(i), outcome(i)].filter(Boolean).join(", "));
  }
  showDetail();
  markTable();
  draw();
};
const compare = (i) => {
  if (!canCompare(state.selected, i)) return;
  state.partner = i;
  say(`compared with ${heading(i)}`);
  showDetail();
  draw();
};
const compareNext = () => {
  if (state.selected < 0) return;
  const near = nearestAt(state.selected, 1).map((found) => found.row).filter((row) => canCompare(state.selected, row));
  if (near.length) compare(near[(near.indexOf(state.partner) + 1) % near.length]);
};
const showMap = () => byId("map").scrollIntoView({ behavior: "instant" });
const bringIn = (i) => {
  const [x, y] = screen(i);
  const border = 30;
  if (x < border || y < border || x > frame.width - border || y > frame.height - border) {
    if (state.zoom === 1 && !state.x && !state.y) return; // all rows are in sight
    state.x += frame.width / 2 - x;
    state.y += frame.height / 2 - y;
  }
};
const nearestTo = (x, y, most) => {
  let [best, least] = [-1, most * most];
  const at = transform();
  for (let i = 0; i < n; i++) {
    const [dx, dy] = [at.x + now[2 * i] * at.scale - x, at.y - now[2 * i + 1] * at.scale - y];
    const d = dx * dx + dy * dy;
    if (d < least && !isFaint(i)) { least = d; best = i; }
  }
  return best;
};
const step = (dx, dy) => {
  if (state.selected < 0) { select(nearestTo(frame.width / 2, frame.height / 2, Infinity), true); return; }
  const [x, y] = screen(state.selected);
  let [best, least] = [-1, Infinity];
  for (let i = 0; i < n; i++) {
    if (i === state.selected || isFaint(i)) continue;
    const [a, b] = screen(i);
    const along = (a - x) * dx + (b - y) * dy;
    const aside = Math.abs((a - x) * dy - (b - y) * dx);
    if (along <= 0 || aside > along) continue; // a quarter of the plane
    const d = along + 2 * aside;
    if (d < least) { least = d; best = i; }
  }
  if (best >= 0) select(best, true);
};
const byNumber = Array.from({ length: n }, (_, i) => i).sort((a, b) => rows[a] - rows[b]);
const next = (by) => {
  const seen = (state.subset ? state.subset.order : byNumber).filter((i) => !isFaint(i));
  if (!seen.length) return;
  const at = seen.indexOf(state.selected);
  select(seen[at < 0 ? (by > 0 ? 0 : seen.length - 1) : (at + by + seen.length) % seen.length], true);
};

// -- sets of rows: a search, a list, an area ------------------------------------------------------

const MOST_FOUND = 300;
const showSubset = (name, order, note, said) => {
  state.subset = null;
  if (order !== null) {
    const mask = new Uint8Array(n);
    for (const i of order) mask[i] = 1;
    state.subset = { name, order, mask: order.length ? mask : new Uint8Array(n).fill(1) };
  }
  for (const other of byId("lists").children) other.setAttribute("aria-pressed", String(other.dataset.name === name));
  const list = byId("found");
  list.replaceChildren();
  if (note) list.append(element("p", { textContent: note }));
  (order || []).slice(0, MOST_FOUND).forEach((i, at) => {
    const extra = said ? ` · ${said[at]}` : texts.length ? ` · ${cellOf(texts[0], i)}` : "";
    list.append(button(heading(i) + extra, () => { select(i, true); showMap(); }));
  });
  fillTable();
  draw();
};
const texts = columns.filter((column) => column.texts);
const matching = (query) => {
  const words = query.trim().toLowerCase();
  if (!words) return null;
  const number = /^(?:row\s*)?(\d+)$/.exec(words);
  const [itself, exact, others] = [[], [], []];
  for (const i of byNumber) {
    if (number && rows[i] + data.firstRow === Number(number[1])) itself.push(i);
    else if (labels && labelOf(i).toLowerCase() === words) exact.push(i);
    else if ((labels && labelOf(i).toLowerCase().includes(words)) ||
      texts.some((column) => column.texts[column.codes[i]].toLowerCase().includes(words))) others.push(i);
  }
  return [...itself, ...exact, ...others];
};
const search = () => {
  const found = matching(byId("search").value);
  const words = found === null ? "" : found.length === 0 ? "No row among those drawn." :
    `${found.length} row${found.length === 1 ? "" : "s"} found${found.length > MOST_FOUND ? `, ${MOST_FOUND} listed` : ""}`;
  showSubset(found === null ? "all rows" : "found", found, words);
  if (words) say(words);
  return found;
};
byId("search").addEventListener("input", search);
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    if (!state.subset || state.subset.name !== "found") search();
    const found = state.subset;
    if (found && found.order.length) {
      found.at = ((found.at ?? -1) + 1) % found.order.length;
      select(found.order[found.at], true);
      showMap();
    }
    event.preventDefault();
  } else if (event.key === "Escape") {
    byId("search").value = "";
    search();
    canvas.focus();
    event.preventDefault();
  }
});
const openList = (list) => {
  byId("search").value = "";
  const part = list.rows.length < list.total ? ` ${list.rows.length} of ${list.total} are listed.` : "";
  const none = list.total ? "" : " There are none.";
  showSubset(list.name, list.rows, `${list.note}${part}${none}`.trim(), list.said);
  say(`${list.name}: ${list.total} rows`);
};
for (const list of [{ name: "all rows", rows: null }, ...lists]) {
  const open = () => { if (list.rows) openList(list); else { byId("search").value = ""; showSubset("all rows", null, ""); } };
  const count = list.rows ? ` ${list.total}` : "";
  const made = button(list.name + count, open, { "aria-pressed": String(!list.rows) });
  made.dataset.name = list.name;
  byId("lists").append(made);
}

let lasso = []; // corners on the screen, while the area is drawn
const inside = (corners, x, y) => {
  let found = false;
  for (let i = 0, j = corners.length - 1; i < corners.length; j = i++) {
    const [[xi, yi], [xj, yj]] = [corners[i], corners[j]];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) found = !found;
  }
  return found;
};
const selectArea = (corners) => {
  const order = byNumber.filter((i) => inside(corners, ...screen(i)));
  const words = `${order.length} row${order.length === 1 ? "" : "s"} in the area`;
  showSubset("area", order, words);
  say(words);
};
const selectInView = () => {
  const { width, height } = frame;
  selectArea([[0, 0], [width, 0], [width, height], [0, height]]);
};

