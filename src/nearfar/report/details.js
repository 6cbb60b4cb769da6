// -- neighbours of a row --------------------------------------------------------------------------

const listed = (name, i) => {
  const found = neighbors[name];
  return Array.from({ length: found.count }, (_, j) => ({ row: found.rows[i * found.count + j], distance: found.distances[i * found.count + j] }));
};
// By d² = (1 − t) before + t after, among all rows that are near at some step; the ends are stored.
const nearestAt = (i, t) => {
  if (i >= data.nDetailed) return [];
  if (t === 1 || !between) return neighbors.after ? listed("after", i) : [];
  if (t === 0) return listed("before", i);
  const found = [];
  for (let at = between.starts[i]; at < between.starts[i + 1]; at++) {
    found.push({ row: between.rows[at], distance: Math.sqrt((1 - t) * between.before[at] + t * between.after[at]) });
  }
  return found.sort((a, b) => a.distance - b.distance).slice(0, neighbors.after.count);
};

// -- pictures and cells ---------------------------------------------------------------------------

const picture = (i) => {
  if (!images || i >= n) return null;
  const [height, width] = images.shape;
  if ((i + 1) * width * height > images.grey.length) return null;
  const made = element("canvas", { className: "picture", width, height });
  made.setAttribute("aria-hidden", "true");
  const grey = new ImageData(width, height);
  for (let p = 0; p < width * height; p++) {
    const value = images.grey[i * width * height + p];
    grey.data.set([value, value, value, 255], 4 * p);
  }
  made.getContext("2d").putImageData(grey, 0, 0);
  return made;
};
const sized = (made, width) => {
  if (made) { made.style.width = `${width}px`; made.style.height = "auto"; }
  return made;
};
const values = (i, count) => {
  const list = element("dl", { className: "values" });
  for (const column of columns.slice(0, count)) {
    list.append(element("dt", { textContent: column.name, title: column.name }), element("dd", { textContent: cellOf(column, i) }));
  }
  return list;
};
const canCompare = (a, b) => metric !== null && a !== b && a >= 0 && b >= 0 && Math.max(a, b) < metric.count;
const cell = ({ row, distance }, own) => {
  const same = labels ? labels.codes[row] === labels.codes[own] : null;
  const drawn = row < n;
  const kind = same === null ? "" : same ? ", same class" : ", other class";
  const made = element(drawn ? "button" : "div", {
    className: "pick", title: drawn ? `Select ${heading(row)}` : `${heading(row)} is not among the drawn rows`,
  }, picture(row),
  element("strong", { textContent: labels ? labelOf(row) : rowName(row) }),
  element("span", { className: "small", textContent: labels ? rowName(row) : "" }),
  element("span", { className: "small", textContent: `at ${shortNumber(distance)}` }),
  element("span", { className: "hidden", textContent: kind }));
  if (drawn) { made.type = "button"; made.addEventListener("click", () => select(row, true)); }
  const box = element("div", { className: `cell${same === null ? " plain" : same ? "" : " other"}` }, made);
  if (canCompare(own, row)) box.append(button("compare", () => compare(row), { className: "compare", title: `Compare with ${rowName(row)}` }));
  return box;
};
const neighborList = (title, found, own) =>
  element("div", { className: "near" }, element("h4", { textContent: title }), ...found.map((near) => cell(near, own)));
const neighborLists = (i) => {
  if (i >= data.nDetailed) {
    const searched = neighbors.before || neighbors.after;
    return searched ? [element("p", { className: "small", textContent: "Its neighbours are not on the page, which has those of listed rows and of a sample." })] : [];
  }
  const found = [];
  if (neighbors.before) found.push(neighborList("before learning", listed("before", i), i));
  const t = slider ? slider.steps[state.view] : 1;
  if (t > 0 && t < 1) {
    const how = between.exact[i] ? "" : ", among the nearest of both ends";
    found.push(neighborList(`at t = ${t}${how}`, nearestAt(i, t), i));
  }
  if (neighbors.after) found.push(neighborList("after learning", listed("after", i), i));
  return found;
};

// -- what a distance is made of -------------------------------------------------------------------

const standardised = (i, j) => {
  if (metric.values) return metric.values[i * metric.names.length + j];
  return metric.scales[j] > 0 ? columns[metric.columns[j]].numbers[i] / metric.scales[j] : 0;
};
const sharesOf = (a, b) => {
  const d = metric.names.length;
  const delta = Float64Array.from({ length: d }, (_, j) => standardised(a, j) - standardised(b, j));
  const shares = (matrix) => {
    const parts = new Float64Array(d);
    let sum = 0;
    for (let i = 0; i < d; i++) {
      let row = 0;
      for (let j = 0; j < d; j++) row += matrix[i * d + j] * delta[j];
      parts[i] = delta[i] * row;
      sum += parts[i];
    }
    return sum > 0 ? parts.map((part) => part / sum) : parts;
  };
  return { delta, before: shares(metric.before), after: shares(metric.after) };
};
const SHARES = 10; // features with a bar
const bar = (share, most, kind) => {
  const made = element("span", { className: `share ${kind}${share < 0 ? " negative" : ""}` });
  made.style.width = `${(50 * Math.abs(share)) / most}%`;
  return element("span", { className: "track" }, made);
};
const pairPanel = (a, b) => {
  const { delta, before, after } = sharesOf(a, b);
  const order = Array.from(delta.keys()).sort((i, j) => Math.abs(after[j]) + Math.abs(before[j]) - Math.abs(after[i]) - Math.abs(before[i]));
  const top = order.slice(0, SHARES);
  const rest = order.slice(SHARES);
  const sum = (list) => rest.reduce((total, i) => total + list[i], 0);
  const all = top.flatMap((i) => [before[i], after[i]]).concat([sum(before), sum(after)]);
  const most = Math.max(1e-12, ...all.map(Math.abs));
  const line = (name, sd, was, is) => element("tr", {},
    element("th", { scope: "row", textContent: name, title: name }),
    element("td", { className: "number", textContent: sd }),
    element("td", {}, bar(was, most, "was"), bar(is, most, "is")),
    element("td", { className: "number" }, element("span", { className: "small", textContent: percent(was) }), element("br"), percent(is)));
  const body = element("tbody", {}, ...top.map((i) => line(metric.names[i], `${delta[i] > 0 ? "+" : ""}${delta[i].toFixed(2)}`, before[i], after[i])));
  if (rest.length) body.append(line(`${rest.length} others`, "", sum(before), sum(after)));
  const made = element("div", { id: "pair" },
    element("h4", { textContent: `What the distance of ${rowName(a)} and ${rowName(b)} is made of` }),
    element("table", { className: "pair" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col", textContent: "feature" }),
        element("th", { scope: "col", className: "number", textContent: "difference", title: "in standard deviations of the feature" }), element("th", { scope: "col", textContent: "share" }),
        element("th", { scope: "col", className: "number", textContent: "before after" }))), body));
  made.append(element("p", { className: "small", textContent: "Differences are in standard deviations; shares of the squared distance, grey before and blue after learning, add up to 100 %." +
    ([...before, ...after].some((share) => share < -5e-4) ? " A negative share, in orange: together with the others, this difference makes the two rows nearer." : "") }));
  return made;
};

