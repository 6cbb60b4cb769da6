// -- zoom, pan and areas --------------------------------------------------------------------------

const zoomBy = (factor, x = frame.width / 2, y = frame.height / 2) => {
  const zoom = Math.min(100, Math.max(0.5, state.zoom * factor));
  const by = zoom / state.zoom;
  state.x = x - frame.width / 2 - by * (x - frame.width / 2 - state.x);
  state.y = y - frame.height / 2 - by * (y - frame.height / 2 - state.y);
  state.zoom = zoom;
  hover(-1);
  draw();
};
const reset = () => { Object.assign(state, { zoom: 1, x: 0, y: 0 }); hover(-1); draw(); };
const pointers = new Map();
let moved = 0;
let drawsArea = false;
const areaButton = byId("area");
const setArea = (on) => { areaButton.setAttribute("aria-pressed", String(on)); };
areaButton.addEventListener("click", () => setArea(areaButton.getAttribute("aria-pressed") !== "true"));
const at = (event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, at(event));
  moved = 0;
  drawsArea = pointers.size === 1 && (event.shiftKey || areaButton.getAttribute("aria-pressed") === "true");
  lasso = drawsArea ? [at(event)] : [];
});
canvas.addEventListener("pointermove", (event) => {
  const [x, y] = at(event);
  const before = pointers.get(event.pointerId);
  if (!before) { hover(nearestTo(x, y, 14)); return; }
  if (drawsArea) lasso.push([x, y]);
  else if (pointers.size === 2) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const was = Math.hypot(before[0] - other[0], before[1] - other[1]) || 1;
    zoomBy(Math.hypot(x - other[0], y - other[1]) / was, (x + other[0]) / 2, (y + other[1]) / 2);
  } else {
    state.x += x - before[0];
    state.y += y - before[1];
  }
  moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
  pointers.set(event.pointerId, [x, y]);
  hover(-1);
  draw();
});
const release = (event) => {
  const place = pointers.get(event.pointerId);
  pointers.delete(event.pointerId);
  const corners = lasso;
  lasso = [];
  if (event.type !== "pointerup" || !place) return;
  if (moved < 5) {
    const i = nearestTo(...place, 16);
    if (event.shiftKey) compare(i);
    else select(i, false);
  } else if (drawsArea) { setArea(false); selectArea(corners); }
};
canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => hover(-1));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015)), ...at(event));
}, { passive: false });

// -- keyboard -------------------------------------------------------------------------------------

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const KEYS = {
  n: () => next(1), p: () => next(-1), c: compareNext, a: selectInView, "+": () => zoomBy(1.4), "=": () => zoomBy(1.4),
  "-": () => zoomBy(1 / 1.4), 0: reset, Escape: () => { select(-1, false); say("nothing selected"); },
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const arrow = ARROWS[key];
  if (arrow && event.shiftKey) { state.x -= 60 * arrow[0]; state.y -= 60 * arrow[1]; draw(); }
  else if (arrow) step(...arrow);
  else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(input|select|textarea)$/i.test(event.target.tagName)) return;
  event.preventDefault();
  showMap();
  byId("search").focus({ preventScroll: true });
});

// -- views, the slider, colours and their legend --------------------------------------------------

const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
const MOVE = 350; // milliseconds from one view to the next
let moving = 0;
const show = (view) => {
  state.view = view;
  const before = Float32Array.from(now);
  const places = views[view].places;
  const old = frame;
  measure();
  tellView();
  if (colours[state.colour].follows) { colour = colours[state.colour].make(); }
  hover(-1);
  showDetail();
  cancelAnimationFrame(moving);
  if (calm.matches) { now.set(places); draw(); return; }
  // From where points are on the screen, so that two scales are no jump.
  for (let i = 0; i < n; i++) {
    before[2 * i] = frame.cx + ((before[2 * i] - old.cx) * old.scale) / frame.scale;
    before[2 * i + 1] = frame.cy + ((before[2 * i + 1] - old.cy) * old.scale) / frame.scale;
  }
  const began = performance.now();
  const move = (time) => {
    const t = Math.min(1, Math.max(0, (time - began) / MOVE));
    const eased = t * t * (3 - 2 * t);
    for (let i = 0; i < 2 * n; i++) now[i] = before[i] + eased * (places[i] - before[i]);
    if (t === 1) now.set(places);
    drawNow();
    if (t < 1) moving = requestAnimationFrame(move);
  };
  moving = requestAnimationFrame(move);
};
const tellView = () => {
  const view = views[state.view];
  if (!slider) { byId("note").textContent = `Axes: ${view.note}.`; return; }
  const t = slider.steps[state.view];
  const name = t === 0 ? "old distance" : t === 1 ? "learned distance" : `t = ${t}`;
  const error = slider.errors ? `: ${(100 * slider.errors[state.view]).toFixed(2)} % of ${slider.count.toLocaleString("en")} rows wrong` : "";
  byId("at").textContent = name + error;
  byId("t").setAttribute("aria-valuetext", name + error);
  byId("note").textContent = `The map holds ${view.note}.`;
  const mark = byId("curve-mark");
  if (mark) {
    const [x, y] = mark.previousElementSibling.getAttribute("points").split(" ")[state.view].split(",");
    mark.setAttribute("cx", x);
    mark.setAttribute("cy", y);
  }
};
const legend = () => {
  const box = byId("legend");
  box.replaceChildren();
  state.only = -1;
  if (!colour.texts) {
    const bar = element("canvas", { className: "ramp", width: 256, height: 1 });
    const target = bar.getContext("2d");
    for (let x = 0; x < 256; x++) { target.fillStyle = `rgb(${ramp(x / 255).join(" ")})`; target.fillRect(x, 0, 1, 1); }
    box.append(bar, element("div", { className: "ends" },
      element("span", { textContent: shortNumber(colour.low) }), element("span", { textContent: shortNumber(colour.high) })));
    return;
  }
  const counts = new Array(LEGEND + 1).fill(0);
  for (let i = 0; i < n; i++) counts[colour.tones[i]]++;
  counts.forEach((count, tone) => {
    if (!count) return;
    const mark = element("canvas", { width: 28, height: 28 });
    const target = mark.getContext("2d");
    target.fillStyle = paint(tone);
    trace(target, n > FEW ? 0 : shapeOf(tone), 14, 14, 9);
    target.fill();
    const text = tone < LEGEND ? colour.texts[tone] : `${colour.texts.length - LEGEND} more`;
    const made = button("", () => {
      state.only = state.only === tone ? -1 : tone;
      for (const other of box.children) other.setAttribute("aria-pressed", String(other === made && state.only >= 0));
      draw();
    }, { title: `Show only these ${count}`, "aria-pressed": "false" });
    made.append(mark, text);
    made.dataset.tone = tone;
    box.append(made);
  });
};
const setColour = (i) => {
  state.colour = i;
  colour = colours[i].make();
  legend();
  draw();
};
const fill = (choice, names, change) => {
  names.forEach((name, i) => choice.append(element("option", { value: String(i), textContent: name })));
  choice.addEventListener("change", () => change(Number(choice.value)));
  choice.closest("label").hidden = names.length < 2;
};
fill(byId("view"), slider ? [] : views.map((view) => view.name), show);
fill(byId("colour"), colours.map((entry) => entry.name), setColour);
if (slider) byId("t").addEventListener("input", () => show(Number(byId("t").value)));
byId("zoom-in").addEventListener("click", () => zoomBy(1.4));
byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.4));
byId("reset").addEventListener("click", reset);
byId("in-view").addEventListener("click", selectInView);

// -- theme and start ------------------------------------------------------------------------------

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const themeButton = byId("theme");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
const repaint = () => {
  readTheme();
  themeButton.textContent = isDark() ? "Light" : "Dark";
  const only = state.only;
  setColour(state.colour);
  if (only >= 0) byId("legend").querySelector(`[data-tone="${only}"]`)?.click();
};
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  repaint();
});
dark.addEventListener("change", repaint);
if (heldOut) byId("rings").textContent = n > FEW ? "Colour by “held out” to see which rows were held out." : "Rows with a ring were held out.";
measure();
repaint();
tellView();
fillTable();
if (lists.length && lists[0].rows.length) select(lists[0].rows[0], false);
canvas.setAttribute("aria-label", `Map of ${n} rows`);
new ResizeObserver(() => { measure(); draw(); }).observe(canvas.parentElement);
