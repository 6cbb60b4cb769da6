"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  // -- reading ------------------------------------------------------------------------------------

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const n = data.nShown;
  const rows = new Uint32Array(bytes(data.rows));
  const labels = data.labels && { ...data.labels, codes: new Uint32Array(bytes(data.labels.codes)) };
  const views = data.views.map((v) => ({ ...v, places: new Float32Array(bytes(v.places)) }));
  const neighbors = {};
  for (const [name, found] of Object.entries(data.neighbors)) {
    neighbors[name] = {
      count: found.count,
      rows: new Uint32Array(bytes(found.rows)),
      distances: new Float32Array(bytes(found.distances)),
    };
  }
  const columns = data.columns.map((c) => ({
    name: c.name,
    texts: c.texts,
    codes: c.codes && new Uint32Array(bytes(c.codes)),
    numbers: c.numbers && new Float32Array(bytes(c.numbers)),
  }));
  const images = data.images && { shape: data.images.shape, grey: new Uint8Array(bytes(data.images.grey)) };
  const tested = data.tested;

  const rowName = (i) => `row ${rows[i] + data.firstRow}`;
  const labelOf = (i) => (labels ? labels.texts[labels.codes[i]] : null);
  const isolated = (text) => `\u2068${text}\u2069`; // so that its direction of writing ends with it
  const shortNumber = (x) => {
    if (!Number.isFinite(x)) return "–";
    const size = Math.abs(x);
    if (Number.isInteger(x) && size < 1e6) return String(x);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? x.toExponential(2) : String(Number(x.toPrecision(4)));
  };
  const cellOf = (column, i) =>
    column.numbers ? shortNumber(column.numbers[i]) : column.texts[column.codes[i]];

  const element = (tag, properties = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made) made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  };

  // -- what to colour by --------------------------------------------------------------------------

  const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
  const ramp = (t) => {
    const at = Math.min(Math.max(t, 0), 1) * (CIVIDIS.length - 1);
    const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
    const mixed = CIVIDIS[low].map((c, i) => Math.round(c + (at - low) * (CIVIDIS[low + 1][i] - c)));
    return `rgb(${mixed.join(" ")})`;
  };
  const category = (name, texts, codes) => ({ name, texts, codes });
  const colours = [];
  if (labels) colours.push(category(labels.name, labels.texts, labels.codes));
  if (tested) {
    const known = (list) => list.map((value) => value !== null);
    const results = (which) => category(
      `right or wrong ${which} learning`,
      ["right", "wrong", ...(known(tested[which]).every(Boolean) ? [] : ["not tested"])],
      tested[which].map((value, i) => (value === null ? 2 : tested[`${which}Wrong`][i])),
    );
    colours.push(results("after"), results("before"));
    if (tested.heldOut) {
      colours.push(category("held out", ["training", "held out"], tested.after.map((v) => (v === null ? 0 : 1))));
    }
  }
  for (const column of columns) {
    if (column.numbers) {
      const finite = Array.from(column.numbers).filter(Number.isFinite);
      const low = finite.reduce((a, b) => Math.min(a, b), Infinity);
      const high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
      colours.push({ name: column.name, numbers: column.numbers, low, high });
    } else colours.push(category(column.name, column.texts, column.codes));
  }
  if (!colours.length) colours.push(category("nothing", ["rows"], new Uint32Array(n)));

  // -- state --------------------------------------------------------------------------------------

  const PALETTE = 8;
  const SHAPES = 5;
  const LEGEND = 40; // entries at most; the other texts share a grey one
  const canvas = byId("plot");
  const context = canvas.getContext("2d");
  const state = { view: 0, colour: 0, zoom: 1, x: 0, y: 0, hover: -1, selected: -1, only: -1, matches: null };
  const now = new Float32Array(views[0].places); // where points are drawn, also between two views
  let theme = {};
  const readTheme = () => {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    theme = { paper: read("--paper"), ink: read("--ink"), soft: read("--soft"), rule: read("--rule"), accent: read("--accent") };
    theme.palette = Array.from({ length: PALETTE }, (_, i) => read(`--c${i}`));
  };

  const isOutcome = (colour) => colour.texts && colour.texts[0] === "right" && colour.texts[1] === "wrong";
  const paint = (colour, code) => {
    if (isOutcome(colour)) return [theme.soft, theme.palette[1], theme.rule][code];
    return code >= LEGEND ? theme.soft : theme.palette[code % PALETTE];
  };
  const shapeOf = (colour, code) => {
    if (isOutcome(colour)) return code === 1 ? 3 : 0;
    return code >= LEGEND ? 0 : Math.floor(code / PALETTE) % SHAPES;
  };
  const codeOf = (colour, i) => Math.min(colour.codes[i], LEGEND);
  const colourAt = (colour, i) => {
    if (!colour.numbers) return paint(colour, codeOf(colour, i));
    const value = colour.numbers[i];
    if (!Number.isFinite(value)) return theme.soft;
    return ramp(colour.high > colour.low ? (value - colour.low) / (colour.high - colour.low) : 0.5);
  };

  const trace = (target, shape, x, y, r) => {
    target.beginPath();
    if (shape === 0) target.arc(x, y, r, 0, 2 * Math.PI);
    else if (shape === 1) { target.moveTo(x, y - 1.25 * r); target.lineTo(x + 1.15 * r, y + 0.8 * r); target.lineTo(x - 1.15 * r, y + 0.8 * r); }
    else if (shape === 2) target.rect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
    else if (shape === 3) { target.moveTo(x, y - 1.3 * r); target.lineTo(x + 1.3 * r, y); target.lineTo(x, y + 1.3 * r); target.lineTo(x - 1.3 * r, y); }
    else { target.moveTo(x, y + 1.25 * r); target.lineTo(x + 1.15 * r, y - 0.8 * r); target.lineTo(x - 1.15 * r, y - 0.8 * r); }
    target.closePath();
  };

  // -- drawing ------------------------------------------------------------------------------------

  const MARGIN = 26;
  let frame = { width: 0, height: 0, scale: 1, cx: 0, cy: 0 };
  const measure = () => {
    const box = canvas.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(box.width * ratio));
    canvas.height = Math.max(1, Math.round(box.height * ratio));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const low = [Infinity, Infinity];
    const high = [-Infinity, -Infinity];
    const places = views[state.view].places;
    for (let i = 0; i < 2 * n; i++) {
      low[i % 2] = Math.min(low[i % 2], places[i]);
      high[i % 2] = Math.max(high[i % 2], places[i]);
    }
    const spans = [high[0] - low[0] || 1, high[1] - low[1] || 1];
    const scale = Math.min((box.width - 2 * MARGIN) / spans[0], (box.height - 2 * MARGIN) / spans[1]);
    frame = { width: box.width, height: box.height, scale, cx: (low[0] + high[0]) / 2, cy: (low[1] + high[1]) / 2 };
  };
  const screen = (i) => [
    frame.width / 2 + (now[2 * i] - frame.cx) * frame.scale * state.zoom + state.x,
    frame.height / 2 - (now[2 * i + 1] - frame.cy) * frame.scale * state.zoom + state.y,
  ];
  const radius = () => Math.min(7, (n > 1500 ? 2.6 : n > 400 ? 3.4 : 4.4) * Math.sqrt(Math.sqrt(state.zoom)));
  const isFaint = (colour, i) =>
    (state.only >= 0 && colour.codes && codeOf(colour, i) !== state.only) ||
    (state.matches !== null && !state.matches.has(i));

  let waiting = false;
  const draw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawNow(); });
  };
  const drawNow = () => {
    const colour = colours[state.colour];
    const r = radius();
    context.clearRect(0, 0, frame.width, frame.height);
    // Faint rows lie below the others, and wrong ones above.
    const layer = (i) => (isFaint(colour, i) ? 0 : isOutcome(colour) && colour.codes[i] === 1 ? 2 : 1);
    const layers = Uint8Array.from({ length: n }, (_, i) => layer(i));
    for (const level of [0, 1, 2]) {
      for (let i = n - 1; i >= 0; i--) {
        if (layers[i] !== level) continue;
        const [x, y] = screen(i);
        if (x < -r || y < -r || x > frame.width + r || y > frame.height + r) continue;
        context.globalAlpha = level === 0 ? 0.12 : 0.85;
        context.fillStyle = colourAt(colour, i);
        trace(context, colour.codes ? shapeOf(colour, codeOf(colour, i)) : 0, x, y, r);
        context.fill();
      }
    }
    context.globalAlpha = 1;
    drawNames(colour);
    if (state.selected >= 0) drawNeighbors(state.selected, r);
    for (const [i, width] of [[state.hover, 2], [state.selected, 3]]) {
      if (i < 0) continue;
      const [x, y] = screen(i);
      context.lineWidth = width + 2;
      context.strokeStyle = theme.paper;
      trace(context, 0, x, y, r + 4);
      context.stroke();
      context.lineWidth = width;
      context.strokeStyle = theme.ink;
      context.stroke();
    }
  };
  const drawNames = (colour) => {
    if (!colour.codes || isOutcome(colour) || colour.texts.length > 26 || colour.texts.length < 2) return;
    context.font = "600 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    colour.texts.forEach((text, code) => {
      const xs = [];
      const ys = [];
      for (let i = 0; i < n; i++) {
        if (colour.codes[i] === code) { const [x, y] = screen(i); xs.push(x); ys.push(y); }
      }
      if (!xs.length || (state.only >= 0 && state.only !== code)) return;
      const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
      const [x, y] = [middle(xs), middle(ys)];
      const short = text.length > 16 ? `${text.slice(0, 15)}…` : text;
      context.lineWidth = 4;
      context.strokeStyle = theme.paper;
      context.strokeText(short, x, y);
      context.fillStyle = theme.ink;
      context.fillText(short, x, y);
    });
  };
  const drawNeighbors = (i, r) => {
    const [x, y] = screen(i);
    for (const [name, dash] of [["before", [3, 4]], ["after", []]]) {
      const found = neighbors[name];
      if (!found) continue;
      context.setLineDash(dash);
      context.lineWidth = name === "after" ? 2 : 1.5;
      context.strokeStyle = name === "after" ? theme.accent : theme.soft;
      for (let j = 0; j < found.count; j++) {
        const other = found.rows[i * found.count + j];
        if (other >= n) continue;
        const [x1, y1] = screen(other);
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(x1, y1);
        context.stroke();
      }
    }
    context.setLineDash([]);
  };

  // -- pictures and words of a row ----------------------------------------------------------------

  const picture = (i) => {
    if (!images || i >= n) return null;
    const [height, width] = images.shape;
    const made = element("canvas", { className: "picture", width, height });
    made.setAttribute("aria-hidden", "true");
    const pixels = new ImageData(width, height);
    for (let p = 0; p < width * height; p++) {
      const value = images.grey[i * width * height + p];
      pixels.data.set([value, value, value, 255], 4 * p);
    }
    made.getContext("2d").putImageData(pixels, 0, 0);
    return made;
  };
  const sized = (made, width) => {
    if (made) { made.style.width = `${width}px`; made.style.height = "auto"; }
    return made;
  };
  const outcome = (i) => {
    if (!tested || i >= n || tested.after[i] === null) return null;
    const word = (which) => `${isolated(tested[which][i])}${tested[`${which}Wrong`][i] ? " (wrong)" : " (right)"}`;
    return `predicted before: ${word("before")}; after: ${word("after")}`;
  };
  const values = (i, count) => {
    const list = element("dl", { className: "values" });
    for (const column of columns.slice(0, count)) {
      list.append(element("dt", { textContent: column.name, title: column.name }), element("dd", { textContent: cellOf(column, i) }));
    }
    return list;
  };
  const heading = (i) => (labels ? `${rowName(i)} · ${isolated(labelOf(i))}` : rowName(i));
  const cell = (i, distance, own) => {
    const same = labels && own >= 0 ? labels.codes[i] === labels.codes[own] : null;
    const drawn = i < n;
    const made = element(drawn ? "button" : "div", {
      className: `cell${same === null ? " plain" : same ? "" : " other"}`,
      title: drawn ? `Select ${heading(i)}` : `${heading(i)} is not among the drawn rows`,
    });
    if (drawn) {
      made.type = "button";
      made.addEventListener("click", () => { select(i, true); byId("map").scrollIntoView(); });
    }
    const kind = same === null ? "" : same ? ", same class" : ", other class";
    made.append(
      ...[picture(i)].filter(Boolean),
      element("strong", { textContent: labels ? labelOf(i) : rowName(i) }),
      element("span", { className: "small", textContent: labels ? rowName(i) : "" }),
      element("span", { className: "small", textContent: `at ${shortNumber(distance)}` }),
      element("span", { className: "hidden", textContent: kind }),
    );
    return made;
  };
  const neighborList = (i, name) => {
    const found = neighbors[name];
    if (!found) return null;
    const list = element("div", { className: "near" }, element("h4", { textContent: `${name} learning` }));
    for (let j = 0; j < found.count; j++) {
      const at = i * found.count + j;
      list.append(cell(found.rows[at], found.distances[at], i));
    }
    return list;
  };

  // -- hover and selection ------------------------------------------------------------------------

  const tip = byId("tip");
  const hover = (i) => {
    if (i === state.hover) return;
    state.hover = i;
    tip.hidden = i < 0;
    if (i >= 0) {
      tip.replaceChildren(...[sized(picture(i), 72)].filter(Boolean), element("strong", { textContent: heading(i) }));
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
  const select = (i, centre) => {
    state.selected = i;
    detail.replaceChildren();
    if (i >= 0) {
      if (centre) bringIn(i);
      detail.append(...[sized(picture(i), 72)].filter(Boolean), element("h3", { textContent: heading(i) }));
      const words = outcome(i);
      if (words) detail.append(element("p", { textContent: words }));
      for (const name of ["before", "after"]) detail.append(...[neighborList(i, name)].filter(Boolean));
      if (columns.length) detail.append(values(i, 12));
      byId("said").textContent = [heading(i), words].filter(Boolean).join(", ");
    }
    draw();
  };
  const showMap = () => byId("map").scrollIntoView({ behavior: "instant" });
  const bringIn = (i) => {
    const [x, y] = screen(i);
    const border = 40;
    if (x < border || y < border || x > frame.width - border || y > frame.height - border) {
      state.x += frame.width / 2 - x;
      state.y += frame.height / 2 - y;
    }
  };
  const nearestTo = (x, y, most) => {
    let best = -1;
    let least = most * most;
    const colour = colours[state.colour];
    for (let i = 0; i < n; i++) {
      const [a, b] = screen(i);
      const d = (a - x) ** 2 + (b - y) ** 2;
      if (d < least && !isFaint(colour, i)) { least = d; best = i; }
    }
    return best;
  };
  const step = (dx, dy) => {
    if (state.selected < 0) { select(nearestTo(frame.width / 2, frame.height / 2, Infinity), true); return; }
    const [x, y] = screen(state.selected);
    const colour = colours[state.colour];
    let best = -1;
    let least = Infinity;
    for (let i = 0; i < n; i++) {
      if (i === state.selected || isFaint(colour, i)) continue;
      const [a, b] = screen(i);
      const along = (a - x) * dx + (b - y) * dy;
      const aside = Math.abs((a - x) * dy - (b - y) * dx);
      if (along <= 0 || aside > along) continue; // a quarter of the plane
      const d = along + 2 * aside;
      if (d < least) { least = d; best = i; }
    }
    if (best >= 0) select(best, true);
  };
  const order = Array.from({ length: n }, (_, i) => i).sort((a, b) => rows[a] - rows[b]);
  const next = (by) => {
    const colour = colours[state.colour];
    const seen = order.filter((i) => !isFaint(colour, i));
    if (!seen.length) return;
    const at = seen.indexOf(state.selected);
    select(seen[at < 0 ? (by > 0 ? 0 : seen.length - 1) : (at + by + seen.length) % seen.length], true);
  };

  // -- zoom and pan -------------------------------------------------------------------------------

  const zoomBy = (factor, x = frame.width / 2, y = frame.height / 2) => {
    const zoom = Math.min(200, Math.max(0.5, state.zoom * factor));
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
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const last = pointers.get(event.pointerId);
    if (!last) { hover(nearestTo(x, y, 14)); return; }
    if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const was = Math.hypot(last[0] - other[0], last[1] - other[1]) || 1;
      zoomBy(Math.hypot(x - other[0], y - other[1]) / was, (x + other[0]) / 2, (y + other[1]) / 2);
    } else {
      state.x += x - last[0];
      state.y += y - last[1];
    }
    moved += Math.abs(x - last[0]) + Math.abs(y - last[1]);
    pointers.set(event.pointerId, [x, y]);
    hover(-1);
    draw();
  });
  const release = (event) => {
    const place = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    if (event.type === "pointerup" && place && moved < 5) select(nearestTo(...place, 16), false);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015)), ...at(event));
  }, { passive: false });

  // -- keyboard -----------------------------------------------------------------------------------

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const arrow = ARROWS[key];
    if (arrow && event.shiftKey) { state.x -= 60 * arrow[0]; state.y -= 60 * arrow[1]; draw(); }
    else if (arrow) step(...arrow);
    else if (key === "n") next(1);
    else if (key === "p") next(-1);
    else if (key === "+" || key === "=") zoomBy(1.4);
    else if (key === "-") zoomBy(1 / 1.4);
    else if (key === "0") reset();
    else if (key === "Escape") { select(-1, false); byId("said").textContent = "nothing selected"; }
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

  // -- search -------------------------------------------------------------------------------------

  const MOST_FOUND = 30;
  const texts = columns.filter((column) => column.texts);
  const matching = (query) => {
    const words = query.trim().toLowerCase();
    if (!words) return null;
    const number = /^(?:row\s*)?(\d+)$/.exec(words);
    const [itself, exact, others] = [[], [], []];
    for (const i of order) {
      if (number && rows[i] + data.firstRow === Number(number[1])) itself.push(i);
      else if (labels && labelOf(i).toLowerCase() === words) exact.push(i);
      else if ((labels && labelOf(i).toLowerCase().includes(words)) ||
        texts.some((column) => column.texts[column.codes[i]].toLowerCase().includes(words))) others.push(i);
    }
    return [...itself, ...exact, ...others];
  };
  const search = () => {
    const found = matching(byId("search").value);
    const list = byId("found");
    list.replaceChildren();
    state.matches = found && found.length ? new Set(found) : null;
    if (found) {
      const words = found.length === 0 ? "No row among those drawn." :
        `${found.length} row${found.length === 1 ? "" : "s"} found${found.length > MOST_FOUND ? `, ${MOST_FOUND} listed` : ""}`;
      list.append(element("p", { textContent: words }));
      byId("said").textContent = words;
      for (const i of found.slice(0, MOST_FOUND)) {
        const extra = texts.length ? ` · ${cellOf(texts[0], i)}` : "";
        const button = element("button", { type: "button", textContent: heading(i) + extra });
        button.addEventListener("click", () => { select(i, true); showMap(); });
        list.append(button);
      }
    }
    draw();
    return found;
  };
  byId("search").addEventListener("input", search);
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      const found = search();
      if (found && found.length) {
        const place = found.indexOf(state.selected);
        select(found[(place + 1) % found.length], true);
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

  // -- views, colours, legend ---------------------------------------------------------------------

  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  let moving = 0;
  const show = (view) => {
    state.view = view;
    const before = Float32Array.from(now);
    const places = views[view].places;
    const old = frame;
    measure();
    byId("note").textContent = `Axes: ${views[view].note}.`;
    hover(-1);
    cancelAnimationFrame(moving);
    if (calm.matches) { now.set(places); draw(); return; }
    // From where points are on the screen, so that two scales are no jump.
    for (let i = 0; i < n; i++) {
      before[2 * i] = frame.cx + ((before[2 * i] - old.cx) * old.scale) / frame.scale;
      before[2 * i + 1] = frame.cy + ((before[2 * i + 1] - old.cy) * old.scale) / frame.scale;
    }
    const began = performance.now();
    const move = (time) => {
      const t = Math.min(1, Math.max(0, (time - began) / 500));
      const eased = t * t * (3 - 2 * t);
      for (let i = 0; i < 2 * n; i++) now[i] = before[i] + eased * (places[i] - before[i]);
      if (t === 1) now.set(places);
      drawNow();
      if (t < 1) moving = requestAnimationFrame(move);
    };
    moving = requestAnimationFrame(move);
  };
  const legend = () => {
    const colour = colours[state.colour];
    const box = byId("legend");
    box.replaceChildren();
    state.only = -1;
    if (colour.numbers) {
      const bar = element("canvas", { className: "ramp", width: 256, height: 1 });
      const target = bar.getContext("2d");
      for (let x = 0; x < 256; x++) { target.fillStyle = ramp(x / 255); target.fillRect(x, 0, 1, 1); }
      box.append(bar, element("div", { className: "ends" },
        element("span", { textContent: shortNumber(colour.low) }), element("span", { textContent: shortNumber(colour.high) })));
      return;
    }
    const counts = new Array(LEGEND + 1).fill(0);
    for (let i = 0; i < n; i++) counts[codeOf(colour, i)]++;
    counts.forEach((count, code) => {
      if (!count) return;
      const mark = element("canvas", { width: 28, height: 28 });
      const target = mark.getContext("2d");
      target.fillStyle = paint(colour, code);
      trace(target, shapeOf(colour, code), 14, 14, 9);
      target.fill();
      const text = code < LEGEND ? colour.texts[code] : `${colour.texts.length - LEGEND} more`;
      const button = element("button", { type: "button", title: `Show only these ${count}` }, mark, text);
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        state.only = state.only === code ? -1 : code;
        for (const other of box.children) other.setAttribute("aria-pressed", String(other === button && state.only >= 0));
        draw();
      });
      box.append(button);
    });
  };
  const fill = (select, names, change) => {
    names.forEach((name, i) => select.append(element("option", { value: String(i), textContent: name })));
    select.addEventListener("change", () => change(Number(select.value)));
    select.closest("label").hidden = names.length < 2;
  };
  fill(byId("view"), views.map((view) => view.name), show);
  fill(byId("colour"), colours.map((colour) => colour.name), (i) => { state.colour = i; legend(); draw(); });
  byId("zoom-in").addEventListener("click", () => zoomBy(1.4));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.4));
  byId("reset").addEventListener("click", reset);

  // -- chosen rows --------------------------------------------------------------------------------

  const chosen = byId("chosen");
  if (chosen) {
    for (let i = 0; i < data.chosen; i++) {
      const words = outcome(i);
      const button = element("button", { type: "button", textContent: "Show on the map" });
      button.addEventListener("click", () => { select(i, true); byId("map").scrollIntoView(); canvas.focus({ preventScroll: true }); });
      const who = element("div", { className: "who" }, sized(picture(i), 72), element("h3", { textContent: heading(i) }),
        words ? element("p", { textContent: words }) : null, button);
      const lists = element("div", { className: "lists" }, ...["before", "after"].map((name) => neighborList(i, name)).filter(Boolean));
      chosen.append(element("article", {}, who, lists));
    }
  }

  // -- theme and start ----------------------------------------------------------------------------

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const repaint = () => {
    readTheme();
    button.textContent = isDark() ? "Light" : "Dark";
    const only = state.only;
    legend();
    state.only = -1;
    if (only >= 0) byId("legend").children[only]?.click();
    draw();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    repaint();
  });
  dark.addEventListener("change", repaint);
  measure();
  repaint();
  byId("note").textContent = `Axes: ${views[0].note}.`;
  canvas.setAttribute("aria-label", `Map of ${n} rows, ${views[0].name}`);
  new ResizeObserver(() => { measure(); draw(); }).observe(canvas);
})();
