// Formats values as rpd-report does in text.

function grouped(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ',');
}

// A time with four digits: 12.34 ms.
function shownTime(ns) {
  const length = Math.abs(ns);
  // A time that is rounded up to 1000 is shown in the next unit.
  const found = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us']].find(([unit]) => length >= unit * 0.99995);
  if (!found) return `${Math.round(ns)} ns`;
  const value = ns / found[0];
  const whole = Math.abs(value);
  const decimals = whole < 9.9995 ? 3 : whole < 99.995 ? 2 : whole < 999.95 ? 1 : 0;
  if (whole < 9999.5) return `${value.toFixed(decimals)} ${found[1]}`;
  return `${value < 0 ? '-' : ''}${grouped(Math.round(whole))} ${found[1]}`;
}

function shownBytes(bytes) {
  const found = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']].find(([unit]) => bytes >= unit);
  if (!found) return `${bytes} B`;
  const value = bytes / found[0];
  return `${Number.isInteger(value) ? grouped(value) : value.toFixed(1)} ${found[1]}`;
}

// A number of any size with four digits.
function shownAmount(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(3);
  return size >= 1000 ? grouped(Math.round(value)) : String(Number(value.toPrecision(4)));
}

// A value of a counter with its unit.
function shownValue(value, unit) {
  if (Number.isNaN(value)) return 'no value';
  const isSize = value >= 0 && value < 1e15;
  if (isSize && unit === 'B') return shownBytes(Math.round(value));
  if (isSize && unit === 'B/s') return `${shownBytes(Math.round(value))}/s`;
  return unit ? `${shownAmount(value)} ${unit}` : shownAmount(value);
}

function shownNumber(kind, value) {
  if (Number.isNaN(value)) return '-';
  switch (kind) {
    case 'ns': return shownTime(value);
    case 'bytes': return shownBytes(value);
    case 'rate': return `${shownBytes(value)}/s`;
    case 'ratio': return `${(value * 100).toFixed(1)} %`;
    case 'ppm': return value.toFixed(3);
    case 'amount': return shownAmount(value);
    case 'key': return String(value);
    default: return grouped(value);
  }
}

// Creates an element with a text. Texts of the run enter the page only here and by textContent.
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
