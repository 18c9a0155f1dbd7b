// Plots of steps, and the two tables that are drawn: work beside that of the others, and delays between ranks.

const SVG = 'http://www.w3.org/2000/svg';
const PLOT = { width: 1200, height: 230, left: 80, right: 12, top: 10, bottom: 26 };

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Returns round numbers between two; powers of two apart, if they are sizes.
function ticksBetween(least, most, count, areSizes = false) {
  const raw = (most - least) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = areSizes ? 2 ** Math.ceil(Math.log2(raw)) : [1, 2, 5, 10].map((factor) => factor * power).find((found) => found >= raw);
  const ticks = [];
  for (let tick = Math.ceil(least / step) * step; tick <= most; tick += step) ticks.push(tick);
  return ticks;
}

function plotFrame(place, label, [least, most], format, areSizes = false) {
  const { width, height, left, right, top, bottom } = PLOT;
  const svg = shape('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label });
  const y = (value) => top + (height - top - bottom) * (1 - (value - least) / (most - least || 1));
  for (const tick of ticksBetween(least, most, 4, areSizes)) {
    svg.append(shape('line', { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: 'grid' }));
    svg.append(shape('text', { x: left - 8, y: y(tick) + 4, 'text-anchor': 'end' }, format(tick)));
  }
  svg.append(shape('line', { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: 'axis' }));
  place.append(svg);
  return { svg, y };
}

function plotLegend(band, curves) {
  const legend = element('ul', undefined, 'legend');
  const legendEntry = (className, style, text) => {
    const item = element('li');
    const swatch = element('span', undefined, `swatch ${className}`);
    if (className) swatch.style.borderTopColor = style;
    else swatch.style.background = style;
    item.append(swatch, element('span', text));
    legend.append(item);
  };
  if (band) legendEntry('', 'var(--band)', band.title);
  curves.forEach((curve) => legendEntry('line', `var(--${curve.style})`, curve.title));
  return legend;
}

// Draws curves over the steps, and a band if there is one. Each has the values of a column.
function drawSeries(place, label, steps, band, curves) {
  const { width, height, left, right } = PLOT;
  const count = steps.length;
  const all = [...(band ? [band.low.values, band.high.values] : []), ...curves.map((curve) => curve.values)];
  let least = Infinity, most = 0;
  for (const values of all) {
    for (const value of values) {
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
  }
  // Small differences are seen only if the axis does not begin at 0.
  const start = least > most / 2 ? Math.max(0, least - (most - least) * 0.1) : 0;
  place.append(plotLegend(band, curves));
  const { svg, y } = plotFrame(place, label, [start, most], shownTime);
  const x = (row) => left + ((width - left - right) * (row + 0.5)) / count;
  // More points than pixels are joined: the least and the greatest of each pixel are drawn.
  const every = Math.max(1, Math.ceil(count / (width - left - right)));
  const rows = Array.from({ length: Math.ceil(count / every) }, (_, place_) => place_ * every);
  const extreme = (values, row, choose) => {
    let found = values[row];
    for (let next = row + 1; next < Math.min(count, row + every); next += 1) found = choose(found, values[next]);
    return found;
  };
  if (band) {
    const upper = rows.map((row) => `${x(row).toFixed(1)},${y(extreme(band.high.values, row, Math.max)).toFixed(1)}`);
    const lower = rows.map((row) => `${x(row).toFixed(1)},${y(extreme(band.low.values, row, Math.min)).toFixed(1)}`);
    svg.append(shape('polygon', { points: [...upper, ...lower.reverse()].join(' '), class: 'band' }));
  }
  for (const curve of curves) {
    const points = rows.flatMap((row) => {
      const ends = [extreme(curve.values, row, Math.min), extreme(curve.values, row, Math.max)];
      const at = (value) => `${x(row).toFixed(1)},${y(value).toFixed(1)}`;
      return every === 1 ? [at(ends[0])] : ends.map(at);
    });
    svg.append(shape('polyline', { points: points.join(' '), class: `curve ${curve.style}` }));
  }
  for (const tick of ticksBetween(0, count - 1, 8).filter(Number.isInteger)) {
    svg.append(shape('text', { x: x(tick), y: height - 8, 'text-anchor': 'middle' }, grouped(steps[tick])));
  }
  addReadout(place, svg, { x, y, count }, (row) => {
    const parts = curves.map((curve) => `${curve.title} ${shownTime(curve.values[row])}`);
    if (band) parts.push(`${band.title} ${shownTime(band.low.values[row])} to ${shownTime(band.high.values[row])}`);
    return `step ${grouped(steps[row])}: ${parts.join('; ')}`;
  });
  svg.setAttribute('aria-label', `${label}. Arrow keys move from step to step.`);
}

// Shows the values at the pointer, or at a cursor that the arrow keys move.
function addReadout(place, svg, { x, count }, describe) {
  const { width, height, left, right, top, bottom } = PLOT;
  const readout = element('p', undefined, 'readout');
  readout.setAttribute('role', 'status');
  place.append(readout);
  svg.setAttribute('tabindex', '0');
  const cursor = shape('line', { class: 'cursor', y1: top, y2: height - bottom, visibility: 'hidden' });
  svg.append(cursor);
  let at = 0;
  const show = (row) => {
    at = Math.min(Math.max(row, 0), count - 1);
    cursor.setAttribute('x1', x(at));
    cursor.setAttribute('x2', x(at));
    cursor.setAttribute('visibility', 'visible');
    readout.textContent = describe(at);
  };
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const inside = ((event.clientX - box.left) / box.width) * width - left;
    show(Math.floor((inside / (width - left - right)) * count));
  });
  svg.addEventListener('focus', () => show(at));
  svg.addEventListener('keydown', (event) => {
    const step = event.shiftKey ? 10 : 1;
    const places = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: count - 1 };
    if (places[event.key] === undefined) return;
    show(places[event.key]);
    event.preventDefault();
  });
}

function drawDistribution(place, table) {
  const { width, height, left, right, bottom } = PLOT;
  const [from, to, steps] = table.columns.map((column) => column.values);
  const most = steps.reduce((one, other) => Math.max(one, other), 0);
  const label = 'Number of steps by their length';
  const { svg, y } = plotFrame(place, label, [0, most], (value) => (Number.isInteger(value) ? grouped(value) : ''));
  const x = (row) => left + ((width - left - right) * row) / table.rows;
  for (let row = 0; row < table.rows; row += 1) {
    const bar = { x: x(row) + 1, y: y(steps[row]), width: Math.max(1, x(row + 1) - x(row) - 2), height: y(0) - y(steps[row]), class: 'bar' };
    svg.append(shape('rect', bar));
  }
  const every = Math.max(1, Math.ceil(table.rows / 8));
  for (let row = 0; row < table.rows; row += every) {
    svg.append(shape('text', { x: x(row), y: height - 8, 'text-anchor': 'middle' }, shownTime(from[row])));
  }
  const readout = { x: (row) => x(row + 0.5), y, count: table.rows };
  addReadout(place, svg, readout, (row) => `${shownTime(from[row])} to ${shownTime(to[row])}: ${grouped(steps[row])} steps`);
  svg.setAttribute('aria-label', `${label}. Arrow keys move from bar to bar.`);
  svg.querySelector('.cursor').setAttribute('y2', height - bottom);
}

// Work of a rank by label, with bars beside those of what is typical.
function drawLabels(place, table, texts, rank) {
  const values = (key) => table.columns.find((column) => column.key === key).values;
  const [labels, own, typical] = ['label', 'step_ns', 'typical_step_ns'].map(values);
  const most = Math.max(...own, ...typical, 1);
  const made = element('table');
  const head = element('tr');
  for (const [title, className] of [['work', ''], [`rank ${rank}, a step`, 'number'], ['typical', 'number'], ['', '']]) {
    const th = element('th', title, className);
    th.scope = 'col';
    head.append(th);
  }
  const thead = element('thead');
  thead.append(head);
  const body = element('tbody');
  for (let row = 0; row < table.rows; row += 1) {
    const tr = element('tr');
    const name = element('th', texts[labels[row]]);
    name.scope = 'row';
    const bars = element('td', undefined, 'bars');
    bars.setAttribute('aria-hidden', 'true');
    for (const [value, className] of [[own[row], 'own'], [typical[row], 'typical']]) {
      const bar = element('span', undefined, className);
      bar.style.width = `${(100 * value) / most}%`;
      bars.append(bar);
    }
    tr.append(name, element('td', shownTime(own[row]), 'number'), element('td', shownTime(typical[row]), 'number'), bars);
    body.append(tr);
  }
  made.append(thead, body);
  const box = element('div', undefined, 'pairs-of-bars');
  box.append(made);
  place.append(box);
}

// Delays between ranks or nodes. Rows delay columns.
function drawMatrix(place, matrix) {
  const { groups, ns, unit } = matrix;
  const most = ns.reduce((one, other) => Math.max(one, other), 0);
  const isDense = groups.length > 16;
  const box = element('div', undefined, isDense ? 'matrix dense' : 'matrix');
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', 'Delays between ranks');
  const table = element('table');
  const head = element('tr');
  const corner = element('th', isDense ? '' : `${unit} delays ${unit}`);
  head.append(corner);
  groups.forEach((group) => {
    const th = element('th', group, 'group');
    th.scope = 'col';
    head.append(th);
  });
  const thead = element('thead');
  thead.append(head);
  const body = element('tbody');
  const readout = element('p', undefined, 'readout');
  readout.setAttribute('role', 'status');
  const words = new Map();
  groups.forEach((group, row) => {
    const tr = element('tr');
    const th = element('th', group);
    th.scope = 'row';
    tr.append(th);
    groups.forEach((other, column) => {
      const value = ns[row * groups.length + column];
      const cell = element('td', value > 0 ? shownTime(value) : '');
      words.set(cell, value > 0 ? `${unit} ${group} delays ${unit} ${other} for ${shownTime(value)}` : `${unit} ${group} does not delay ${unit} ${other}`);
      if (value > 0) {
        const share = Math.round(15 + 75 * (value / most));
        cell.style.background = `color-mix(in srgb, var(--waiting) ${share}%, var(--page))`;
        if (!isDense && share > 60) cell.style.color = '#000000';
      } else {
        cell.style.background = 'var(--nothing)';
      }
      tr.append(cell);
    });
    body.append(tr);
  });
  table.addEventListener('pointerover', (event) => {
    const text = words.get(event.target);
    if (text) readout.textContent = text;
  });
  table.append(thead, body);
  box.append(table);
  place.append(box, readout);
}
