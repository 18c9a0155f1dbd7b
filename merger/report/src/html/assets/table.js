// A table that sorts and filters. Of many rows, only those that are seen are in the document.

const ROW_HEIGHT = 26;
const ROWS_BESIDE = 12;
const MAX_PRINTED = 200;
const MIN_FILTERED = 8;
const collator = new Intl.Collator('en', { numeric: true });

class DataTable {
  constructor(place, name, table, texts) {
    this.table = table;
    this.texts = texts;
    this.columns = table.columns.filter((column) => column.title && this.hasValues(column));
    this.order = Uint32Array.from({ length: table.rows }, (_, row) => row);
    this.sorted = { column: undefined, isDescending: false };
    this.wanted = '';
    this.build(place, name);
    this.update();
  }

  hasValues(column) {
    const isKnown = (row) => !['', '-'].includes(this.text(column, row));
    for (let row = 0; row < this.table.rows; row += 1) if (isKnown(row)) return true;
    return false;
  }

  text(column, row) {
    const value = column.values[row];
    return column.kind === 'text' ? this.texts[value] : shownNumber(column.kind, value);
  }

  build(place, name) {
    this.count = element('output');
    const tools = element('div', undefined, 'table-tools');
    if (this.table.rows >= MIN_FILTERED) {
      const label = element('label', 'Filter ');
      const input = element('input');
      input.type = 'search';
      input.setAttribute('aria-label', `Filter ${name}`);
      input.placeholder = 'text in a cell';
      input.addEventListener('input', () => {
        this.wanted = input.value.trim().toLowerCase();
        this.update();
      });
      label.append(input);
      tools.append(label);
    }
    tools.append(this.count);
    this.scroll = element('div', undefined, 'scroll');
    this.scroll.tabIndex = 0;
    this.scroll.setAttribute('role', 'region');
    this.scroll.setAttribute('aria-label', name);
    const shown = element('table');
    this.element = shown;
    const head = element('tr');
    this.columns.forEach((column) => head.append(this.heading(column)));
    const thead = element('thead');
    thead.append(head);
    this.body = element('tbody');
    shown.append(thead, this.body);
    if (this.table.omitted > 0) shown.append(this.foot());
    this.scroll.append(shown);
    this.scroll.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.scroll);
    place.append(tools, this.scroll);
  }

  heading(column) {
    const th = element('th', undefined, column.kind === 'text' ? '' : 'number');
    th.scope = 'col';
    const button = element('button', column.title);
    button.type = 'button';
    button.addEventListener('click', () => {
      const isSame = this.sorted.column === column;
      // Numbers begin with the largest, which is mostly looked for.
      const isDescending = isSame ? !this.sorted.isDescending : column.kind !== 'text' && column.key !== 'rank';
      this.sorted = { column, isDescending };
      [...th.parentElement.children].forEach((other) => other.removeAttribute('aria-sort'));
      th.setAttribute('aria-sort', isDescending ? 'descending' : 'ascending');
      this.update();
    });
    th.append(button);
    return th;
  }

  // The sum of the rows that the page does not have.
  foot() {
    const row = element('tr');
    this.columns.forEach((column, number) => {
      const sum = column.rest === null || column.rest === undefined ? '' : shownNumber(column.kind, column.rest);
      const text = number === 0 ? `${grouped(this.table.omitted)} more` : sum;
      row.append(element('td', text, column.kind === 'text' ? '' : 'number'));
    });
    const foot = element('tfoot');
    foot.append(row);
    return foot;
  }

  update() {
    const matches = (row) => this.columns.some((column) => this.text(column, row).toLowerCase().includes(this.wanted));
    let rows = Array.from({ length: this.table.rows }, (_, row) => row);
    if (this.wanted) rows = rows.filter(matches);
    const { column, isDescending } = this.sorted;
    if (column) {
      const sign = isDescending ? -1 : 1;
      const values = column.values;
      const isUnknown = (row) => (column.kind === 'text' ? this.text(column, row) === '-' : Number.isNaN(values[row]));
      rows.sort((one, other) => {
        // Unknown values are last in either order.
        const unknown = Number(isUnknown(one)) - Number(isUnknown(other));
        if (unknown !== 0 || isUnknown(one)) return unknown || one - other;
        const difference = column.kind === 'text'
          ? collator.compare(this.texts[values[one]], this.texts[values[other]])
          : values[one] - values[other];
        return sign * difference || one - other;
      });
    }
    this.order = Uint32Array.from(rows);
    this.element.setAttribute('aria-rowcount', String(this.order.length + 1));
    const all = `${grouped(this.table.rows)} ${this.table.rows === 1 ? 'row' : 'rows'}`;
    this.count.textContent = this.wanted ? `${grouped(this.order.length)} of ${all}` : all;
    this.scroll.scrollTop = 0;
    this.draw(true);
  }

  // Puts the rows that are seen into the document, with empty space in place of the others.
  draw(isChanged) {
    const count = this.order.length;
    const height = this.scroll.clientHeight || 27 * 16;
    let first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_HEIGHT) - ROWS_BESIDE);
    let last = Math.min(count, first + Math.ceil(height / ROW_HEIGHT) + 2 * ROWS_BESIDE);
    if (this.isPrinted) [first, last] = [0, Math.min(count, MAX_PRINTED)];
    if (!isChanged && first === this.first && last === this.last) return;
    [this.first, this.last] = [first, last];
    const space = (rows) => {
      const row = element('tr', undefined, 'spacer');
      const cell = element('td');
      cell.colSpan = Math.max(1, this.columns.length);
      cell.style.height = `${rows * ROW_HEIGHT}px`;
      row.append(cell);
      row.setAttribute('aria-hidden', 'true');
      return row;
    };
    const drawn = [];
    if (first > 0 && !this.isPrinted) drawn.push(space(first));
    for (let place = first; place < last; place += 1) drawn.push(this.row(place));
    if (last < count && !this.isPrinted) drawn.push(space(count - last));
    if (last < count && this.isPrinted) {
      const row = element('tr');
      const cell = element('td', `${grouped(count - last)} further rows are not printed`);
      cell.colSpan = Math.max(1, this.columns.length);
      row.append(cell);
      drawn.push(row);
    }
    this.body.replaceChildren(...drawn);
  }

  row(place) {
    const row = element('tr');
    row.setAttribute('aria-rowindex', String(place + 2));
    for (const column of this.columns) {
      const text = this.text(column, this.order[place]);
      const cell = element('td', text, column.kind === 'text' ? '' : 'number');
      if (text.length > 40) cell.title = text;
      row.append(cell);
    }
    return row;
  }

  print(isPrinted) {
    this.isPrinted = isPrinted;
    this.draw(true);
  }
}
