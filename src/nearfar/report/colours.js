// -- state ----------------------------------------------------------------------------------------

const last = views.length - 1;
const state = {
  view: slider ? last : 0, colour: 0, zoom: 1, x: 0, y: 0, hover: -1, selected: -1, partner: -1, only: -1,
  subset: null, // { name, order: rows that a search, a list or an area holds, mask }
};
const now = new Float32Array(views[state.view].places); // where points are drawn, also between two views

// -- what to colour by ----------------------------------------------------------------------------

const PALETTE = 8;
const SHAPES = 5;
const LEGEND = 40; // entries at most; the other texts share a grey one
const TONES = 64; // of a column of numbers
const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
const ramp = (t) => {
  const at = Math.min(Math.max(t, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return CIVIDIS[low].map((c, i) => Math.round(c + (at - low) * (CIVIDIS[low + 1][i] - c)));
};
// Each entry has a tone for every row, a number below 65, and a paint for every tone.
const category = (name, texts, codes) => ({ name, texts, tones: Uint8Array.from({ length: n }, (_, i) => Math.min(codes[i], LEGEND)) });
const range = (name, numbers) => {
  let [low, high] = [Infinity, -Infinity];
  for (const x of numbers) if (Number.isFinite(x)) { low = Math.min(low, x); high = Math.max(high, x); }
  const unit = high > low ? (TONES - 1) / (high - low) : 0;
  const tones = Uint8Array.from(numbers, (x) => (Number.isFinite(x) ? Math.round((x - low) * unit + (unit ? 0 : TONES / 2)) : TONES));
  return { name, low, high, tones };
};
const OUTCOMES = ["right", "wrong", "not tested"];
const outcomes = (name, codeOf) => ({ ...category(name, OUTCOMES, Uint8Array.from({ length: n }, (_, i) => codeOf(i))), isOutcome: true });
const results = (which) => outcomes(`right or wrong ${which} learning`, (i) => (wasTested(i) ? tested[`${which}Wrong`][i] : 2));
const atStep = (i) => (slider.known[i] ? (slider.wrong[i] >> state.view) & 1 : 2);
const colours = [];
if (labels) colours.push({ name: labels.name, make: () => category(labels.name, labels.texts, labels.codes) });
if (slider && slider.errors) {
  const name = "right or wrong, by the slider";
  colours.push({ name, make: () => outcomes(name, atStep), follows: true });
} else if (tested) {
  for (const which of ["after", "before"]) colours.push({ name: `right or wrong ${which} learning`, make: () => results(which) });
}
if (heldOut) colours.push({ name: "held out", make: () => category("held out", ["training", "held out"], heldOut) });
for (const column of columns.slice(0, 60)) {
  const make = () => (column.numbers ? range(column.name, column.numbers) : category(column.name, column.texts, column.codes));
  colours.push({ name: column.name, make });
}
if (!colours.length) colours.push({ name: "nothing", make: () => category("nothing", ["rows"], new Uint8Array(n)) });
let colour = null; // the entry in use, made when it is chosen

let theme = {};
const readTheme = () => {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  theme = { paper: read("--paper"), ink: read("--ink"), soft: read("--soft"), rule: read("--rule"), accent: read("--accent") };
  theme.palette = Array.from({ length: PALETTE }, (_, i) => read(`--c${i}`));
};
const paint = (tone) => {
  if (!colour.texts) return tone === TONES ? theme.soft : `rgb(${ramp(tone / (TONES - 1)).join(" ")})`;
  if (colour.isOutcome) return [theme.soft, theme.palette[1], theme.rule][tone];
  return tone >= LEGEND ? theme.soft : theme.palette[tone % PALETTE];
};
const shapeOf = (tone) => {
  if (!colour.texts) return 0;
  if (colour.isOutcome) return tone === 1 ? 3 : 0;
  return tone >= LEGEND ? 0 : Math.floor(tone / PALETTE) % SHAPES;
};
const isFaint = (i) =>
  (state.only >= 0 && colour.texts && colour.tones[i] !== state.only) || (state.subset !== null && !state.subset.mask[i]);

