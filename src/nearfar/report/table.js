// -- the table of the rows in a set ---------------------------------------------------------------

const PAGE = 50; // rows of the table at a time
const SHOWN = 16; // columns of the table; the CSV file has all
const fields = [
  { name: "row", number: (i) => rows[i] + data.firstRow },
  ...(labels ? [{ name: labels.name, text: labelOf }] : []),
  ...(tested ? ["before", "after"].map((which) => ({ name: `predicted ${which}`, text: (i) => (wasTested(i) ? predicted(which, i) : "") })) : []),
  ...(heldOut ? [{ name: "held out", text: (i) => (heldOut[i] ? "held out" : "") }] : []),
  ...columns.map((column) => (column.numbers ? { name: column.name, number: (i) => column.numbers[i] } : { name: column.name, text: (i) => cellOf(column, i) })),
];
const sorting = { field: -1, down: false, shown: PAGE, order: [] };
const sortedRows = () => {
  const order = (state.subset ? state.subset.order : byNumber).slice();
  const field = fields[sorting.field];
  if (!field) return order;
  const sign = sorting.down ? -1 : 1;
  if (field.text) {
    const words = new Map(order.map((i) => [i, field.text(i)]));
    return order.sort((a, b) => sign * words.get(a).localeCompare(words.get(b), undefined, { numeric: true }));
  }
  const key = (i) => { const x = field.number(i); return Number.isNaN(x) ? Infinity : x; };
  return order.sort((a, b) => sign * (key(a) - key(b) || 0));
};
const fillTable = () => {
  sorting.order = sortedRows();
  sorting.shown = PAGE;
  byId("table-name").textContent = `${state.subset ? state.subset.name : "all rows"}: ${sorting.order.length}`;
  const head = element("tr", {}, ...fields.slice(0, SHOWN).map((field, at) => {
    const made = element("th", { scope: "col", className: field.number ? "number" : "" }, button(field.name, () => {
      sorting.down = sorting.field === at && !sorting.down;
      sorting.field = at;
      fillTable();
      byId("rows").querySelectorAll("thead button")[at].focus();
    }));
    if (at === sorting.field) made.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    return made;
  }));
  byId("rows").replaceChildren(element("thead", {}, head), element("tbody"));
  moreRows(0);
};
const moreRows = (from) => {
  const body = byId("rows").tBodies[0];
  for (const i of sorting.order.slice(from, sorting.shown)) {
    const line = element("tr", {}, ...fields.slice(0, SHOWN).map((field, at) => {
      const words = field.number ? shortNumber(field.number(i)) : field.text(i);
      if (at > 0) return element("td", { className: field.number ? "number" : "", textContent: words });
      return element("td", { className: "number" }, button(words, () => { select(i, true); showMap(); }, { title: `Select ${heading(i)}` }));
    }));
    line.dataset.row = i;
    body.append(line);
  }
  byId("more").hidden = sorting.order.length <= sorting.shown;
  markTable();
};
const markTable = () => {
  for (const line of byId("rows").querySelectorAll("tbody tr")) line.classList.toggle("selected", Number(line.dataset.row) === state.selected);
};
byId("more").addEventListener("click", () => { sorting.shown += PAGE; moreRows(sorting.shown - PAGE); });
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const csv = () => {
  const lines = [fields.map((field) => quoted(field.name)).join(",")];
  for (const i of sorting.order) {
    lines.push(fields.map((field) => {
      if (field.text) return quoted(field.text(i));
      const x = field.number(i);
      return Number.isFinite(x) ? String(Number(x.toPrecision(9)) === x ? x : Number(x.toPrecision(7))) : "";
    }).join(","));
  }
  return `${lines.join("\n")}\n`;
};
byId("csv").addEventListener("click", () => {
  const address = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  element("a", { href: address, download: `${(state.subset ? state.subset.name : "rows").replaceAll(" ", "_")}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
});

