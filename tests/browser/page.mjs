#!/usr/bin/env node
// Opens a page of rpd-report in a Chromium without a window, and uses it by keyboard.
//
//     node page.mjs FILE PICTURES load|use
//
// Prints a line of JSON. With `load`: {"ms", "errors"}, the time from navigation until the page is complete. With `use`
// also what the page shows, and how it reacts; PICTURES-light.png and PICTURES-dark.png show it.
import fs from 'node:fs';
import process from 'node:process';
import { pathToFileURL } from 'node:url';
import { sleep, startChromium } from './chromium.mjs';

const [file, pictures, mode] = process.argv.slice(2);
if (!mode) {
  console.error('usage: page.mjs FILE PICTURES load|use');
  process.exit(2);
}
const browser = startChromium({ width: 1400, height: 1000, patience: 90_000, what: 'the page' });
const { tell, inPage, heard, leave } = browser;

const KEYS = {
  Tab: { key: 'Tab', code: 'Tab', windowsVirtualKeyCode: 9 },
  Enter: { key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13, text: '\r' },
  Space: { key: ' ', code: 'Space', windowsVirtualKeyCode: 32, text: ' ' },
  ArrowRight: { key: 'ArrowRight', code: 'ArrowRight', windowsVirtualKeyCode: 39 },
  ArrowDown: { key: 'ArrowDown', code: 'ArrowDown', windowsVirtualKeyCode: 40 },
};
async function press(name, times = 1) {
  for (let time = 0; time < times; time += 1) {
    await tell('Input.dispatchKeyEvent', { type: KEYS[name].text ? 'keyDown' : 'rawKeyDown', ...KEYS[name] });
    await tell('Input.dispatchKeyEvent', { type: 'keyUp', ...KEYS[name] });
  }
}

async function load() {
  const began = performance.now();
  await tell('Page.navigate', { url: pathToFileURL(file).href });
  while (!(await inPage(() => document.documentElement?.dataset.ready === 'yes' || document.getElementById('problem')?.hidden === false).catch(() => false))) {
    await sleep(5);
  }
  return performance.now() - began;
}

// Takes a picture of the whole page.
async function picture(name) {
  const height = await inPage(() => document.documentElement.scrollHeight);
  const clip = { x: 0, y: 0, width: 1400, height: Math.min(height, 8000), scale: 1 };
  const { data } = await tell('Page.captureScreenshot', { format: 'png', captureBeyondViewport: true, clip });
  fs.writeFileSync(`${pictures}-${name}.png`, Buffer.from(data, 'base64'));
}

const background = () => inPage(() => getComputedStyle(document.body).backgroundColor);
const media = (scheme, type = '') => tell('Emulation.setEmulatedMedia', { media: type, features: [{ name: 'prefers-color-scheme', value: scheme }] });

// Returns the first cells of a column of the table at a place, the sort of the column, and the number of drawn rows.
const column = (place, title) => inPage((place, title) => {
  const table = document.querySelector(`#table-${place} table`);
  const heads = [...table.querySelectorAll('thead th')];
  const number = heads.findIndex((head) => head.textContent === title);
  const rows = [...table.querySelectorAll('tbody tr:not(.spacer)')];
  return {
    cells: rows.map((row) => row.children[number].textContent), sort: heads[number].getAttribute('aria-sort'),
    drawn: rows.length, count: document.querySelector(`#table-${place} output`).textContent,
  };
}, place, title);

async function use() {
  const found = { ms: await load() };
  found.problem = await inPage(() => (document.getElementById('problem').hidden ? null : document.getElementById('problem').textContent));
  found.head = await inPage(() => document.getElementById('head').textContent);
  found.lines = await inPage(() => [...document.querySelectorAll('#lines dt')].map((dt) => [dt.textContent, dt.nextElementSibling.textContent]));
  found.links = await inPage(() => [...document.querySelectorAll('#lines a')].every((link) => document.querySelector(link.getAttribute('href'))));
  found.foreign = await inPage(() => [document.images.length, document.querySelectorAll('link, iframe, object, embed').length, 'hacked' in window]);
  found.labels = await inPage(() => [...document.querySelectorAll('#labels-table tbody th')].map((th) => th.textContent));
  found.matrix = await inPage(() => [...document.querySelectorAll('#matrix tbody tr')].map((tr) => [...tr.querySelectorAll('td')].map((td) => td.textContent)));
  found.notes = await inPage(() => [...document.querySelectorAll('.note')].map((note) => note.textContent));

  found.counterNote = await inPage(() => document.querySelector('#counters-parts .note')?.textContent ?? null);
  found.counterTitles = await inPage(() => [...document.querySelectorAll('#counters-plots h3')].map((title) => title.textContent));

  // The order of the keyboard.
  found.tabs = [];
  for (let tab = 0; tab < 12; tab += 1) {
    await press('Tab');
    found.tabs.push(await inPage(() => {
      const style = getComputedStyle(document.activeElement);
      return [document.activeElement.id || document.activeElement.textContent, style.outlineStyle];
    }));
  }

  if (await inPage(() => Boolean(document.querySelector('#table-blame table')))) {
    const focus = (title) => inPage((title) => [...document.querySelectorAll('#table-blame thead button')].find((button) => button.textContent === title).focus(), title);
    await focus('rank');
    await press('Enter');
    found.ascending = await column('blame', 'rank');
    await press('Space');
    found.descending = await column('blame', 'rank');
    await focus('others wait');
    await press('Enter');
    found.largest = await column('blame', 'others wait');
    await inPage(() => document.querySelector('#table-ranks input')?.focus());
    await tell('Input.insertText', { text: 'rank 13' });
    found.filtered = await column('ranks', 'process');
    await inPage(() => {
      const input = document.querySelector('#table-ranks input');
      input.value = '';
      input.dispatchEvent(new Event('input'));
      const scroll = document.querySelector('#table-ranks .scroll');
      scroll.scrollTop = scroll.scrollHeight;
    });
    await sleep(100);
    found.last = await column('ranks', 'rank');
  }

  if (await inPage(() => Boolean(document.getElementById('heat')))) {
    await inPage(() => document.getElementById('heat').focus());
    const readout = () => inPage(() => document.getElementById('heat-readout').textContent);
    found.readouts = [await readout()];
    await press('ArrowRight', 3);
    found.readouts.push(await readout());
    await press('ArrowDown');
    found.readouts.push(await readout());
    await press('Enter');
    found.readouts.push(await readout());
    await press('ArrowDown');
    found.readouts.push(await readout());
    found.waitingLegend = await inPage(() => {
      document.querySelector('input[value="waiting"]').click();
      const text = document.getElementById('heat-legend').textContent;
      document.querySelector('input[value="dominating"]').click();
      return text;
    });
    found.table = await inPage(() => {
      document.querySelector('#time-details').open = true;
      return document.querySelectorAll('#table-time tbody tr').length;
    });
    await inPage(() => { document.querySelector('#time-details').open = false; });
  }

  if (await inPage(() => Boolean(document.querySelector('#counters-plots svg')))) {
    found.counters = await inPage(() => {
      const explained = document.getElementById('counters-explained').textContent;
      const legends = [...document.querySelectorAll('#counters-plots .plot')].map((plot) => [...plot.querySelectorAll('.legend li')].map((item) => item.textContent));
      const rows = [...document.querySelectorAll('#table-counters tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent));
      const notes = [...document.querySelectorAll('#counters-plots .note')].map((note) => note.textContent);
      const paths = [...document.querySelectorAll('#counters-plots path')].map((path) => path.getAttribute('d').split('M').length - 1);
      return { explained, legends, rows, notes, paths };
    });
    await inPage(() => document.querySelector('#counters-plots svg').focus());
    const readout = () => inPage(() => document.querySelector('#counters-plots .readout').textContent);
    found.counters.readouts = [await readout()];
    await inPage(() => document.querySelector('#counters-plots svg').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', shiftKey: true })));
    for (let time = 0; time < 25; time += 1) await press('ArrowRight');
    found.counters.readouts.push(await readout());
    found.counters.table = await inPage(() => {
      document.getElementById('counters-details').open = true;
      const count = document.querySelector('#table-counter_points output').textContent;
      document.getElementById('counters-details').open = false;
      return count;
    });
  }

  await media('light');
  found.light = await background();
  await picture('light');
  await media('dark');
  found.dark = await background();
  await sleep(50);
  await picture('dark');
  await inPage(() => document.getElementById('theme').click());
  found.chosenLight = await background();
  await media('light');
  await inPage(() => document.getElementById('theme').click());
  found.chosenDark = await background();
  // Paper is light, whatever the theme.
  found.print = [];
  await media('dark', 'print');
  const printed = () => inPage(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('nav')).display]);
  found.print.push(await printed());
  await inPage(() => document.getElementById('theme').click());
  found.print.push(await printed());
  const { data } = await tell('Page.printToPDF', { printBackground: true });
  found.pdf = Buffer.from(data, 'base64').subarray(0, 5).toString();
  return found;
}

try {
  await browser.openPage();
  await tell('Log.enable');
  const found = mode === 'load' ? { ms: await load() } : await use();
  found.errors = heard;
  process.stdout.write(`${JSON.stringify(found)}\n`, () => leave(0));
} catch (error) {
  leave(1, `${error.message}\n${heard.join('\n')}`);
}
