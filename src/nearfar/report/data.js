// -- reading --------------------------------------------------------------------------------------

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const bytes = (text) => {
  const raw = atob(text);
  const made = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) made[i] = raw.charCodeAt(i);
  return made.buffer;
};
const KINDS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const readCodes = (packed) => {
  const [kind] = Object.keys(packed);
  return new KINDS[kind](bytes(packed[kind]));
};
const n = data.nShown;
const rows = new Uint32Array(bytes(data.rows));
const labels = data.labels && { ...data.labels, codes: readCodes(data.labels.codes) };
const heldOut = data.heldOut && readCodes(data.heldOut);
const views = data.views.map((view) => {
  const grid = new Uint16Array(bytes(view.places));
  const places = Float32Array.from(grid, (value, i) => view.low[i % 2] + view.unit * value);
  return { name: view.name, note: view.note, places };
});
const neighbors = {};
for (const [name, found] of Object.entries(data.neighbors)) {
  neighbors[name] = {
    count: found.count,
    rows: new Uint32Array(bytes(found.rows)),
    distances: new Float32Array(bytes(found.distances)),
  };
}
const between = data.between && {
  starts: new Uint32Array(bytes(data.between.starts)),
  rows: new Uint32Array(bytes(data.between.rows)),
  before: new Float32Array(bytes(data.between.before)),
  after: new Float32Array(bytes(data.between.after)),
  exact: new Uint8Array(bytes(data.between.exact)),
};
const slider = data.slider && {
  ...data.slider,
  known: data.slider.errors && new Uint8Array(bytes(data.slider.known)),
  wrong: data.slider.errors && new Uint16Array(bytes(data.slider.wrong)),
};
const columns = data.columns.map((column) => ({
  name: column.name,
  texts: column.texts,
  codes: column.codes && readCodes(column.codes),
  numbers: column.numbers && new Float32Array(bytes(column.numbers)),
}));
const metric = data.metric && {
  ...data.metric,
  before: new Float32Array(bytes(data.metric.before)),
  after: new Float32Array(bytes(data.metric.after)),
  values: data.metric.values && new Float32Array(bytes(data.metric.values)),
};
const images = data.images && { shape: data.images.shape, grey: new Uint8Array(bytes(data.images.grey)) };
const tested = data.tested && {
  texts: data.tested.texts,
  before: readCodes(data.tested.before),
  after: readCodes(data.tested.after),
  beforeWrong: readCodes(data.tested.beforeWrong),
  afterWrong: readCodes(data.tested.afterWrong),
};
const lists = data.lists;

// -- words ----------------------------------------------------------------------------------------

const rowName = (i) => `row ${rows[i] + data.firstRow}`;
const labelOf = (i) => (labels ? labels.texts[labels.codes[i]] : null);
const isolated = (text) => `\u2068${text}\u2069`; // so that its direction of writing ends with it
const heading = (i) => (labels ? `${rowName(i)} · ${isolated(labelOf(i))}` : rowName(i));
const shortNumber = (x) => {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e6) return String(x);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? x.toExponential(2) : String(Number(x.toPrecision(4)));
};
const percent = (share) => `${(100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)} %`;
const cellOf = (column, i) => (column.numbers ? shortNumber(column.numbers[i]) : column.texts[column.codes[i]]);
const wasTested = (i) => tested !== null && i < n && tested.after[i] > 0;
const predicted = (which, i) => tested.texts[tested[which][i]];
const outcome = (i) => {
  if (!wasTested(i)) return null;
  const word = (which) => `${isolated(predicted(which, i))}${tested[`${which}Wrong`][i] ? " (wrong)" : " (right)"}`;
  return `predicted before: ${word("before")}; after: ${word("after")}`;
};
const element = (tag, properties = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
};
const button = (text, action, properties = {}) => {
  const made = element("button", { type: "button", textContent: text, ...properties });
  made.addEventListener("click", action);
  return made;
};
const say = (words) => { byId("said").textContent = words; };

