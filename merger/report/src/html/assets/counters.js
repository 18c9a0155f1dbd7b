// Plots of counters over the run.

// Draws a counter of the named rank, and the median of the others if there are some. Cells without a value stay empty.
function drawCounter(place, counter, { cells, from_ns: fromNs, length_ns: lengthNs, lacks_others: lacksOthers }, means, medians) {
  const { width, height, left, right } = PLOT;
  const { noun, unit, others } = counter;
  place.append(element('h3', unit ? `${counter.counter} (${unit})` : counter.counter));
  const curves = [{ style: 'named-1', title: counter.owner, values: means }];
  if (others > 0) {
    const title = others === 1 ? `the other ${noun}` : `median of the ${grouped(others)} other ${others === 1 ? noun : plural(noun)}`;
    curves.unshift({ style: 'median', title, values: medians });
  } else if (!lacksOthers) {
    place.append(element('p', `No other ${noun} has this counter, so that there is no median.`, 'note'));
  }
  let least = Infinity, most = -Infinity;
  for (const { values } of curves) {
    for (const value of values) {
      if (Number.isNaN(value)) continue;
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
  }
  if (least > most) {
    place.append(element('p', 'No value is in this part of the run.', 'note'));
    return;
  }
  // Small differences are seen only if the axis does not begin at 0.
  const isFar = least < most && least > most / 2;
  const [start, end] = isFar ? [least - (most - least) * 0.1, most] : [Math.min(0, least), Math.max(0, most)];
  const box = element('div', undefined, 'plot');
  place.append(box);
  box.append(plotLegend(undefined, curves));
  const label = `${counter.counter} of ${counter.owner}`;
  const areSizes = ['B', 'B/s'].includes(unit);
  const shownUnit = areSizes || unit === '%' ? unit : '';
  const { svg, y } = plotFrame(box, label, [start, end], (tick) => shownValue(tick, shownUnit), areSizes);
  const x = (cell) => left + ((width - left - right) * cell) / cells;
  for (const { style, values } of curves) {
    svg.append(shape('path', { d: stairs(values, x, y), class: `curve ${style}` }));
  }
  for (const tick of ticksBetween(fromNs, fromNs + lengthNs, 8)) {
    svg.append(shape('text', { x: x(((tick - fromNs) / lengthNs) * cells), y: height - 8, 'text-anchor': 'middle' }, shownTime(tick)));
  }
  const bound = (cell) => shownTime(fromNs + (lengthNs * cell) / cells);
  addReadout(box, svg, { x: (cell) => x(cell + 0.5), y, count: cells }, (cell) => {
    const parts = [...curves].reverse().map(({ title, values }) => `${title} ${shownValue(values[cell], unit)}`);
    return `${bound(cell)} to ${bound(cell + 1)}: ${parts.join('; ')}`;
  });
  svg.setAttribute('aria-label', `${label}. Arrow keys move in time.`);
}

function plural(noun) {
  return noun === 'process' ? 'processes' : `${noun}s`;
}

// Returns a path that is level in each cell, and has gaps where there is no value.
function stairs(values, x, y) {
  const parts = [];
  values.forEach((value, cell) => {
    if (Number.isNaN(value)) return;
    const isFirst = cell === 0 || Number.isNaN(values[cell - 1]);
    const [from, to, at] = [x(cell), x(cell + 1), y(value)].map((number) => number.toFixed(1));
    parts.push(`${isFirst ? 'M' : 'L'}${from} ${at}H${to}`);
  });
  return parts.join('');
}
