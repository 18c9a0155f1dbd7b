// Ranks over time: what each does in each cell. Nodes fold to one row.

const ACTIVITIES = ['compute', 'waiting', 'communication', 'copy', 'idle'];
const NOTHING = ACTIVITIES.length;
const GUTTER = 130;
const AXIS = 22;
const MAX_MAP_HEIGHT = 640;
const MAX_ROW_HEIGHT = 22;
const MIN_FOLDED_RANKS = 65;
// If one activity takes most of this share of the cells, the map begins with the share waiting.
const UNIFORM_SHARE = 0.95;
const SCALES = [5, 10, 25, 50, 100];

class HeatMap {
  constructor(heat, table, texts, named) {
    this.heat = heat;
    this.canvas = document.getElementById('heat');
    this.readout = document.getElementById('heat-readout');
    const column = (key) => table.columns.find((found) => found.key === key);
    // A column without any known value has texts.
    const ranks = column('rank');
    this.ranks = ranks.kind === 'text' ? new Float64Array(table.rows).fill(NaN) : ranks.values;
    this.hosts = Array.from(column('host').values, (place) => texts[place]);
    this.processes = Array.from(column('process').values, (place) => texts[place]);
    this.named = new Set(named);
    this.scale = this.findScale();
    this.mode = heat.knows_waiting && this.isUniform() && this.scale > 0 ? 'waiting' : 'dominating';
    document.querySelector(`input[name="heat-mode"][value="${this.mode}"]`).checked = true;
    document.querySelector('input[name="heat-mode"][value="waiting"]').disabled = !heat.knows_waiting;
    this.unfolded = new Set();
    this.nodes = this.findNodes();
    this.canFold = this.nodes.length > 1 && this.nodes.length < this.ranks.length;
    this.isFolded = this.canFold && this.ranks.length >= MIN_FOLDED_RANKS;
    for (const node of this.nodes) {
      const members = Array.from({ length: node.to - node.from }, (_, place) => this.ranks[node.from + place]);
      if (this.nodes.length <= 8 && members.some((rank) => this.named.has(rank))) this.unfolded.add(node.from);
    }
    this.cursor = undefined;
    this.connect();
    this.layOut();
  }

  // Returns whether one activity takes most of nearly all cells.
  isUniform() {
    const counts = new Float64Array(NOTHING + 1);
    for (const activity of this.heat.dominating) counts[activity] += 1;
    const known = counts.reduce((sum, count) => sum + count, 0) - counts[NOTHING];
    return Math.max(...counts.subarray(0, NOTHING)) >= UNIFORM_SHARE * known;
  }

  // Returns the percentage of waiting that has the strongest colour: 99 % of the cells have at most that.
  findScale() {
    const counts = new Float64Array(101);
    for (const percent of this.heat.waiting) counts[percent] += 1;
    let left = this.heat.waiting.length * 0.01;
    let percent = 100;
    while (percent > 0 && left >= counts[percent]) {
      left -= counts[percent];
      percent -= 1;
    }
    return percent > 0 ? SCALES.find((scale) => scale >= percent) : 0;
  }

  // Consecutive ranks with one host name.
  findNodes() {
    const nodes = [];
    this.hosts.forEach((host, row) => {
      const last = nodes[nodes.length - 1];
      if (last && last.host === host) last.to = row + 1;
      else nodes.push({ host, from: row, to: row + 1 });
    });
    return nodes;
  }

  connect() {
    const fold = document.getElementById('heat-fold');
    fold.checked = this.isFolded;
    document.getElementById('heat-fold-label').hidden = !this.canFold;
    fold.addEventListener('change', () => {
      this.isFolded = fold.checked;
      this.unfolded.clear();
      this.cursor = undefined;
      this.layOut();
    });
    for (const radio of document.getElementsByName('heat-mode')) {
      radio.addEventListener('change', () => {
        this.mode = radio.value;
        this.layOut();
      });
    }
    this.canvas.setAttribute('aria-label', 'Ranks over time. Arrow keys move from cell to cell, with Shift by ten; Enter folds a node or unfolds it.');
    this.canvas.setAttribute('aria-describedby', 'heat-readout');
    this.canvas.addEventListener('pointermove', (event) => this.point(event));
    this.canvas.addEventListener('click', (event) => {
      if (event.offsetX < GUTTER) {
        this.point(event);
        this.toggleNode();
      }
    });
    this.canvas.addEventListener('keydown', (event) => this.press(event));
    this.canvas.addEventListener('focus', () => {
      if (!this.cursor) this.move(0, 0);
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
  }

  // Lists the rows: a rank each, or a folded node.
  layOut() {
    this.rows = [];
    for (const node of this.nodes) {
      if (this.isFolded && !this.unfolded.has(node.from)) {
        this.rows.push({ from: node.from, to: node.to, node });
        continue;
      }
      for (let row = node.from; row < node.to; row += 1) this.rows.push({ from: row, to: row + 1, node });
    }
    this.drawLegend();
    this.draw();
  }

  label(row) {
    if (row.to - row.from === 1 && !(this.isFolded && !this.unfolded.has(row.node.from))) return this.rankLabel(row.from);
    return `${row.node.host} (${row.to - row.from})`;
  }

  rankLabel(row) {
    return Number.isNaN(this.ranks[row]) ? this.processes[row] : `rank ${this.ranks[row]}`;
  }

  isNamed(row) {
    for (let rank = row.from; rank < row.to; rank += 1) if (this.named.has(this.ranks[rank])) return true;
    return false;
  }

  // Returns what takes most of a cell of some ranks, and the mean share waiting, percent.
  cellOf(from, to, firstCell, lastCell) {
    const { cells, dominating, waiting } = this.heat;
    const counts = new Float64Array(NOTHING + 1);
    let sum = 0, known = 0;
    for (let rank = from; rank < to; rank += 1) {
      for (let cell = firstCell; cell < lastCell; cell += 1) {
        const place = rank * cells + cell;
        const activity = dominating[place];
        counts[activity] += 1;
        if (activity !== NOTHING) {
          sum += waiting[place];
          known += 1;
        }
      }
    }
    let activity = NOTHING;
    for (let kind = 0; kind < NOTHING; kind += 1) {
      if (counts[kind] > 0 && (activity === NOTHING || counts[kind] > counts[activity])) activity = kind;
    }
    return { activity, waiting: known > 0 ? sum / known : 0, share: counts[activity] / ((to - from) * (lastCell - firstCell)) };
  }

  drawLegend() {
    const legend = document.getElementById('heat-legend');
    const entry = (name, text, share) => {
      const item = element('li');
      const swatch = element('span', undefined, 'swatch');
      swatch.style.background = share === undefined ? `var(--${name})` : this.blended(share);
      item.append(swatch, element('span', text));
      return item;
    };
    if (this.mode === 'waiting') {
      legend.replaceChildren(...this.scaleMarks().map((share) => entry('', `${share}${share === this.scale && share < 100 ? ' % or more' : ' %'}`, share)), entry('nothing', 'nothing recorded'));
      return;
    }
    const texts = ['computing', 'waiting in MPI or RCCL', 'communicating', 'copying', 'idle GPU'];
    const isUsed = new Set(this.heat.dominating);
    const used = ACTIVITIES.map((name, kind) => [name, texts[kind], kind]).filter(([, , kind]) => isUsed.has(kind));
    const entries = used.map(([name, text]) => entry(name, text));
    if (isUsed.has(NOTHING)) entries.push(entry('nothing', 'nothing recorded'));
    legend.replaceChildren(...entries);
  }

  scaleMarks() {
    const most = this.scale || 100;
    return [0, most * 0.2, most * 0.4, most * 0.6, most * 0.8, most];
  }

  blended(percent) {
    const share = Math.min(100, (percent * 100) / (this.scale || 100));
    const [from, to] = [rgb(colour('panel')), rgb(colour('waiting'))];
    return `rgb(${from.map((value, place) => Math.round(value + ((to[place] - value) * share) / 100)).join(', ')})`;
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (width < GUTTER + 50 || this.rows.length === 0) return;
    const count = this.rows.length;
    const rowHeight = Math.min(MAX_ROW_HEIGHT, MAX_MAP_HEIGHT / count);
    const mapHeight = Math.round(Math.max(rowHeight >= 1 ? Math.floor(rowHeight) * count : MAX_MAP_HEIGHT, 20));
    const height = mapHeight + AXIS;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    this.shape = { width, mapHeight, mapWidth: width - GUTTER };
    const context = this.canvas.getContext('2d');
    context.scale(scale, scale);
    context.fillStyle = colour('page');
    context.fillRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture(), GUTTER, 0, this.shape.mapWidth, mapHeight);
    this.drawLabels(context);
    this.drawAxis(context);
    this.drawCursor(context);
  }

  // The cells as a picture: one pixel for a cell, or for several where the map is smaller.
  picture() {
    const { cells } = this.heat;
    const { mapWidth, mapHeight } = this.shape;
    const columns = Math.min(cells, Math.max(1, Math.round(mapWidth)));
    const lines = Math.min(this.rows.length, mapHeight);
    const key = [columns, lines, this.mode, colour('page'), this.isFolded, [...this.unfolded].join()].join();
    if (this.drawn?.key === key) return this.drawn.picture;
    const palette = [...ACTIVITIES, 'nothing'].map((name) => rgb(colour(name)));
    const [empty, full] = [rgb(colour('panel')), rgb(colour('waiting'))];
    const image = new ImageData(columns, lines);
    for (let line = 0; line < lines; line += 1) {
      const from = this.rows[Math.floor((line * this.rows.length) / lines)].from;
      const to = this.rows[Math.max(Math.floor(((line + 1) * this.rows.length) / lines), Math.floor((line * this.rows.length) / lines) + 1) - 1].to;
      for (let column = 0; column < columns; column += 1) {
        const first = Math.floor((column * cells) / columns);
        const last = Math.max(first + 1, Math.floor(((column + 1) * cells) / columns));
        const cell = this.cellOf(from, to, first, last);
        const part = Math.min(1, cell.waiting / (this.scale || 100));
        const mixed = (place) => empty[place] + (full[place] - empty[place]) * part;
        const shown = this.mode === 'waiting' && cell.activity !== NOTHING ? [0, 1, 2].map(mixed) : palette[cell.activity];
        image.data.set([...shown, 255], 4 * (line * columns + column));
      }
    }
    const picture = document.createElement('canvas');
    picture.width = columns;
    picture.height = lines;
    picture.getContext('2d').putImageData(image, 0, 0);
    this.drawn = { key, picture };
    return picture;
  }

  drawLabels(context) {
    const { mapHeight } = this.shape;
    const height = mapHeight / this.rows.length;
    const every = Math.max(1, Math.ceil(14 / height));
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const free = [];
    const draw = (row, place, isNamed) => {
      const middle = Math.min(Math.max((place + 0.5) * height, 6), mapHeight - 6);
      if (free.some((other) => Math.abs(other - middle) < 13)) return;
      free.push(middle);
      context.font = `${isNamed ? '600 ' : ''}12px system-ui, sans-serif`;
      context.fillStyle = colour(isNamed ? 'named-1' : 'quiet');
      const text = this.label(row);
      const shown = text.length > 18 ? `${text.slice(0, 8)}...${text.slice(-7)}` : text;
      context.fillText(shown, GUTTER - 8, middle, GUTTER - 14);
      if (isNamed) context.fillRect(GUTTER - 4, place * height, 4, Math.max(height, 2));
    };
    // Ranks that are named have their labels first.
    this.rows.forEach((row, place) => this.isNamed(row) && draw(row, place, true));
    this.rows.forEach((row, place) => place % every === 0 && !this.isNamed(row) && draw(row, place, false));
  }

  drawAxis(context) {
    const { mapHeight, mapWidth, width } = this.shape;
    context.font = '12px system-ui, sans-serif';
    context.fillStyle = colour('quiet');
    context.textBaseline = 'top';
    const ticks = Math.max(2, Math.min(10, Math.floor(mapWidth / 120)));
    for (let tick = 0; tick <= ticks; tick += 1) {
      const x = GUTTER + (mapWidth * tick) / ticks;
      context.fillRect(Math.min(x, width - 1), mapHeight, 1, 4);
      context.textAlign = tick === 0 ? 'left' : tick === ticks ? 'right' : 'center';
      context.fillText(shownTime(this.heat.from_ns + (this.heat.length_ns * tick) / ticks), x, mapHeight + 6);
    }
  }

  drawCursor(context) {
    if (!this.cursor) return;
    const { mapHeight, mapWidth } = this.shape;
    const height = mapHeight / this.rows.length;
    const width = mapWidth / this.heat.cells;
    context.strokeStyle = colour('text');
    context.lineWidth = 1.5;
    const [x, y] = [GUTTER + this.cursor.cell * width, this.cursor.row * height];
    context.strokeRect(x - 1, y - 1, Math.max(width, 3) + 2, Math.max(height, 3) + 2);
  }

  point(event) {
    const { mapHeight, mapWidth } = this.shape;
    const row = Math.floor((event.offsetY / mapHeight) * this.rows.length);
    const cell = Math.floor(((event.offsetX - GUTTER) / mapWidth) * this.heat.cells);
    if (row < 0 || row >= this.rows.length) return;
    this.cursor = { row, cell: Math.min(Math.max(cell, 0), this.heat.cells - 1) };
    this.show();
  }

  move(rows, cells) {
    const at = this.cursor ?? { row: 0, cell: 0 };
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.cursor = { row: within(at.row + rows, this.rows.length), cell: within(at.cell + cells, this.heat.cells) };
    this.show();
  }

  show() {
    this.draw();
    const { row: place, cell } = this.cursor;
    const row = this.rows[place];
    const { activity, waiting, share } = this.cellOf(row.from, row.to, cell, cell + 1);
    const bound = (number) => shownTime(this.heat.from_ns + (this.heat.length_ns * number) / this.heat.cells);
    const texts = ['computing', 'waiting', 'communicating', 'copying', 'with an idle GPU'];
    const isNode = row.to - row.from > 1;
    const what = isNode ? `${row.node.host}, ${grouped(row.to - row.from)} ranks` : `${this.rankLabel(row.from)} on ${row.node.host}`;
    const mostly = isNode ? `mostly ${texts[activity]} in ${Math.round(share * 100)} % of the ranks` : `mostly ${texts[activity]}`;
    this.readout.textContent = activity === NOTHING
      ? `${what}, ${bound(cell)} to ${bound(cell + 1)}: nothing is recorded`
      : `${what}, ${bound(cell)} to ${bound(cell + 1)}: ${mostly}${this.heat.knows_waiting ? `; waits ${Math.round(waiting)} % of the time` : ''}`;
  }

  press(event) {
    const step = event.shiftKey ? 10 : 1;
    const { cells } = this.heat;
    const moves = {
      ArrowLeft: [0, -step], ArrowRight: [0, step], ArrowUp: [-step, 0], ArrowDown: [step, 0],
      Home: [0, -cells], End: [0, cells], PageUp: [-Math.ceil(this.rows.length / 10), 0], PageDown: [Math.ceil(this.rows.length / 10), 0],
    };
    if (moves[event.key]) this.move(...moves[event.key]);
    else if (event.key === 'Enter' || event.key === ' ') this.toggleNode();
    else return;
    event.preventDefault();
  }

  toggleNode() {
    if (!this.isFolded || !this.cursor) return;
    const { node } = this.rows[this.cursor.row];
    if (!this.unfolded.delete(node.from)) this.unfolded.add(node.from);
    this.layOut();
    this.cursor.row = this.rows.findIndex((row) => row.node === node);
    this.show();
  }

  // The theme changed.
  restyle() {
    this.drawLegend();
    this.draw();
  }
}

function rgb(hex) {
  return [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
}
