// -- places on the screen -------------------------------------------------------------------------

const MARGIN = 22;
const FEW = 6000; // rows up to which each is a shape; more are pixels
const canvas = byId("plot");
const context = canvas.getContext("2d");
const spansOf = (places) => {
  const [low, high] = [[Infinity, Infinity], [-Infinity, -Infinity]];
  for (let i = 0; i < 2 * n; i++) {
    low[i % 2] = Math.min(low[i % 2], places[i]);
    high[i % 2] = Math.max(high[i % 2], places[i]);
  }
  return { low, high, spans: [high[0] - low[0] || 1e-9, high[1] - low[1] || 1e-9] };
};
const boxes = views.map((view) => spansOf(view.places));
let frame = { width: 0, height: 0, scale: 1, cx: 0, cy: 0, ratio: 1 };
let pixels = null; // of the map where rows are many
const measure = () => {
  const stage = canvas.parentElement;
  const width = stage.clientWidth;
  // As high as the rows need at the scale that fills the width, within bounds.
  const { low, high, spans } = boxes[state.view];
  const most = Math.max(260, Math.min(0.75 * window.innerHeight, 680));
  const needed = ((width - 2 * MARGIN) * spans[1]) / spans[0] + 2 * MARGIN;
  const height = Math.round(Math.min(most, Math.max(220, needed)));
  stage.style.height = `${height}px`;
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  pixels = n > FEW ? context.createImageData(canvas.width, canvas.height) : null;
  const scale = Math.min((width - 2 * MARGIN) / spans[0], (height - 2 * MARGIN) / spans[1]);
  frame = { width, height, scale, ratio, cx: (low[0] + high[0]) / 2, cy: (low[1] + high[1]) / 2 };
};
const transform = () => {
  const scale = frame.scale * state.zoom;
  return { scale, x: frame.width / 2 - frame.cx * scale + state.x, y: frame.height / 2 + frame.cy * scale + state.y };
};
const screen = (i) => {
  const at = transform();
  return [at.x + now[2 * i] * at.scale, at.y - now[2 * i + 1] * at.scale];
};
const radius = () => Math.min(7, (n > FEW ? 1.4 : n > 1500 ? 2.6 : n > 400 ? 3.4 : 4.4) * Math.sqrt(Math.sqrt(state.zoom)));

// -- drawing --------------------------------------------------------------------------------------

const trace = (target, shape, x, y, r) => {
  target.beginPath();
  if (shape === 0) target.arc(x, y, r, 0, 2 * Math.PI);
  else if (shape === 1) { target.moveTo(x, y - 1.25 * r); target.lineTo(x + 1.15 * r, y + 0.8 * r); target.lineTo(x - 1.15 * r, y + 0.8 * r); }
  else if (shape === 2) target.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
  else if (shape === 3) { target.moveTo(x, y - 1.3 * r); target.lineTo(x + 1.3 * r, y); target.lineTo(x, y + 1.3 * r); target.lineTo(x - 1.3 * r, y); }
  else { target.moveTo(x, y + 1.25 * r); target.lineTo(x + 1.15 * r, y - 0.8 * r); target.lineTo(x - 1.15 * r, y - 0.8 * r); }
  target.closePath();
};
let waiting = false;
const draw = () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawNow(); });
};
const drawNow = () => {
  const began = performance.now();
  context.clearRect(0, 0, frame.width, frame.height);
  if (n > FEW) drawPixels();
  else drawShapes();
  drawNames();
  drawMarks();
  canvas.dataset.milliseconds = (performance.now() - began).toFixed(1);
};
// Faint rows lie below the others, and wrong ones above.
const layerOf = (i) => (isFaint(i) ? 0 : colour.isOutcome && colour.tones[i] === 1 ? 2 : 1);
const drawShapes = () => {
  const [r, at] = [radius(), transform()];
  const paints = Array.from({ length: TONES + 1 }, (_, tone) => paint(tone));
  const layers = Uint8Array.from({ length: n }, (_, i) => layerOf(i));
  context.lineWidth = 1.2;
  context.strokeStyle = theme.ink;
  for (const level of [0, 1, 2]) {
    context.globalAlpha = level === 0 ? 0.12 : 0.85;
    for (let i = n - 1; i >= 0; i--) {
      if (layers[i] !== level) continue;
      const [x, y] = [at.x + now[2 * i] * at.scale, at.y - now[2 * i + 1] * at.scale];
      if (x < -r || y < -r || x > frame.width + r || y > frame.height + r) continue;
      context.fillStyle = paints[colour.tones[i]];
      trace(context, shapeOf(colour.tones[i]), x, y, r);
      context.fill();
      if (heldOut && heldOut[i]) context.stroke();
    }
  }
  context.globalAlpha = 1;
};
const rgbOf = (text) => (text[0] === "#" ? [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)) : text.match(/\d+/g).map(Number));
// Many rows: a stamp of pixels each, the denser the more opaque; no shapes and no rings.
const drawPixels = () => {
  const target = new Uint32Array(pixels.data.buffer); // alpha, blue, green and red, from the highest byte
  target.fill(0);
  const [wide, high, at, ratio] = [canvas.width, canvas.height, transform(), frame.ratio];
  const paints = Array.from({ length: TONES + 1 }, (_, tone) => {
    const [red, green, blue] = rgbOf(paint(tone) || theme.soft);
    return (blue << 16) | (green << 8) | red;
  });
  const r = radius() * ratio;
  const stamp = [];
  for (let dy = -Math.ceil(r); dy <= r; dy++) for (let dx = -Math.ceil(r); dx <= r; dx++) if (dx * dx + dy * dy <= r * r) stamp.push(dy * wide + dx);
  const edge = Math.ceil(r);
  const plain = state.only < 0 && state.subset === null && !colour.isOutcome; // one layer
  const layers = plain ? null : Uint8Array.from({ length: n }, (_, i) => layerOf(i));
  for (const level of plain ? [1] : [0, 1, 2]) {
    const add = level === 0 ? 6 : 70;
    for (let i = n - 1; i >= 0; i--) {
      if (layers && layers[i] !== level) continue;
      const x = ((at.x + now[2 * i] * at.scale) * ratio) | 0;
      const y = ((at.y - now[2 * i + 1] * at.scale) * ratio) | 0;
      if (x < edge || y < edge || x >= wide - edge || y >= high - edge) continue;
      const paintOf = paints[colour.tones[i]];
      for (let s = 0; s < stamp.length; s++) {
        const p = y * wide + x + stamp[s];
        const alpha = (target[p] >>> 24) + add;
        target[p] = ((alpha > 255 ? 255 : alpha) << 24) | paintOf;
      }
    }
  }
  context.putImageData(pixels, 0, 0);
};
const drawNames = () => {
  if (!colour.texts || colour.isOutcome || colour.texts.length > 26 || colour.texts.length < 2) return;
  context.font = "600 13px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  const seen = Math.min(n, 4000); // enough for medians
  const at = transform();
  const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
  colour.texts.forEach((text, code) => {
    const [xs, ys] = [[], []];
    for (let i = 0; i < seen; i++) if (colour.tones[i] === code) { xs.push(now[2 * i]); ys.push(now[2 * i + 1]); }
    if (!xs.length || (state.only >= 0 && state.only !== code)) return;
    const [x, y] = [at.x + middle(xs) * at.scale, at.y - middle(ys) * at.scale];
    const short = text.length > 16 ? `${text.slice(0, 15)}…` : text;
    context.lineWidth = 4;
    context.strokeStyle = theme.paper;
    context.strokeText(short, x, y);
    context.fillStyle = theme.ink;
    context.fillText(short, x, y);
  });
};
const drawMarks = () => {
  const r = radius();
  if (state.selected >= 0) drawNeighbors(state.selected);
  for (const [i, width, paintOf] of [[state.hover, 2, theme.ink], [state.partner, 2.5, theme.accent], [state.selected, 3, theme.ink]]) {
    if (i < 0 || i >= n) continue;
    const [x, y] = screen(i);
    context.lineWidth = width + 2;
    context.strokeStyle = theme.paper;
    trace(context, 0, x, y, r + 4);
    context.stroke();
    context.lineWidth = width;
    context.strokeStyle = paintOf;
    context.stroke();
  }
  if (lasso.length > 1) {
    context.beginPath();
    lasso.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.setLineDash([5, 4]);
    context.lineWidth = 2;
    context.strokeStyle = theme.accent;
    context.stroke();
    context.setLineDash([]);
  }
};
const drawNeighbors = (i) => {
  const [x, y] = screen(i);
  context.lineWidth = 2;
  context.strokeStyle = theme.accent;
  for (const { row } of nearestAt(i, slider ? slider.steps[state.view] : 1)) {
    if (row >= n) continue;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(...screen(row));
    context.stroke();
  }
};

