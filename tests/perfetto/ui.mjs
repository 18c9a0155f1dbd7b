#!/usr/bin/env node
// Opens a trace in Perfetto's UI in a Chromium without a window.
//
//     node ui.mjs SITE TRACE PICTURE.png [DEPTH [COMMANDS [WAY]]]
//
// SITE is the folder of a built Perfetto UI that has index.html. Chromium is the program that RPD_CHROMIUM names, or
// chromium. Tracks are opened down to DEPTH (2: the ones below processes). COMMANDS are the startup commands of the
// address, escaped. WAY is "address" if the address names the trace, or "file" if it is opened as a user opens a file.
//
// Prints a line of JSON: {"tracks": [{"name", "children"}, ...], "slices": NUMBER or null, "errors": [...], "dialog": TEXT or
// null} and writes a picture of the page. Exit 1, with the reason on standard error, if the trace does not come up.
//
// Chromium talks over a pipe: no port is open but that of the site, on loopback, and no other host can be reached.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import process from 'node:process';
import { sleep, startChromium } from '../browser/chromium.mjs';

const [site, trace, picture, depth = '2', commands = '', way = 'address'] = process.argv.slice(2);
if (!picture) {
  console.error('usage: ui.mjs SITE TRACE PICTURE.png [DEPTH [COMMANDS [WAY]]]');
  process.exit(2);
}
const WIDTH = 1600, HEIGHT = 1000, PATIENCE = 90_000;

// --- the site ---------------------------------------------------------------------------------------------

const TYPES = {
  '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm',
  '.json': 'application/json', '.png': 'image/png', '.svg': 'image/svg+xml', '.woff2': 'font/woff2',
};
const server = http.createServer((request, response) => {
  const name = decodeURIComponent(request.url.split('?')[0]);
  // The package of this UI opens /localtrace itself if the address names no trace, as if a user opened it.
  const isTrace = name === '/opened-trace' || (way === 'file' && ['/localtrace', '/vizviewer_info'].includes(name));
  const file = isTrace ? trace : path.join(site, path.normalize(name === '/' ? '/index.html' : name));
  fs.readFile(file, (error, bytes) => {
    const type = TYPES[path.extname(file)] ?? 'application/octet-stream';
    response.writeHead(error ? 404 : 200, { 'content-type': type, 'cache-control': 'no-store' });
    response.end(error ? undefined : bytes);
  });
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const home = `http://127.0.0.1:${server.address().port}`;

// --- the browser ------------------------------------------------------------------------------------------

const browser = startChromium({
  width: WIDTH, height: HEIGHT, patience: PATIENCE, what: 'the trace', close: () => server.close(),
});
const { tell, inPage, heard, leave } = browser;

// Reads the tracks of a UI from its page, which has groups and the tracks in them, unfolded.
function shownTracks() {
  document.querySelectorAll('.track-group-panel[collapsed="true"] .shell').forEach((group) => group.click());
  const groups = [];
  for (const panel of document.querySelectorAll('.pf-panel')) {
    const title = panel.querySelector('h1');
    if (!title) continue;
    const track = { name: (title.querySelector('span') ?? title).textContent, children: [] };
    const isChild = /^\d+-\d+$/.test(panel.dataset.panelId);
    (isChild ? groups.at(-1).children : groups).push(track);
  }
  return JSON.stringify(groups);
}

// --- the page ---------------------------------------------------------------------------------------------

try {
  await browser.openPage();
  const named = way === 'address' ? [`url=${home}/opened-trace`] : [];
  const parts = [...named, ...(commands ? [`startupCommands=${commands}`] : [])];
  await tell('Page.navigate', { url: `${home}/#!/?${parts.join('&')}` });
  // It moves to the page of the trace when all is loaded. UIs up to v47 do not show scripts their tracks.
  const isOld = /v4[0-7]\./.test(fs.readFileSync(path.join(site, 'index.html'), 'utf8'));
  const isOpen = (isOld) => location.hash.startsWith('#!/viewer') && (isOld || Boolean(globalThis.app?.trace ?? globalThis.app?._activeTrace));
  while (!(await inPage(isOpen, isOld).catch(() => false))) {
    const dialog = await inPage(() => document.querySelector('.pf-modal-dialog, .modal-dialog')?.innerText).catch(() => undefined);
    if (dialog) throw new Error(`the UI says: ${dialog}`);
    await sleep(200);
  }
  // Plugins add their tracks one after the other: the tree is whole when it has been the same for a while.
  let before = '', calm = 0;
  while (calm < 6) {
    await sleep(500);
    const now = await inPage(isOld ? shownTracks : () => {
      const trace = app.trace ?? app._activeTrace;
      const names = (node) => node.children.map((child) => [child.title ?? child.name, names(child)]);
      return JSON.stringify([Boolean(app.isLoadingTrace), names(trace.workspace ?? trace.workspaces.currentWorkspace)]);
    });
    calm = now === before && !now.startsWith('[true') ? calm + 1 : 0;
    before = now;
  }
  const found = isOld ? { tracks: JSON.parse(before), slices: null, errors: [], dialog: null } : await inPage(async (depth) => {
    const trace = app.trace ?? app._activeTrace;
    const workspace = trace.workspace ?? trace.workspaces.currentWorkspace;
    const tree = (node) => node.children.map((child) => ({ name: child.title ?? child.name, children: tree(child) }));
    const open = (node, left) => {
      if (left <= 0) return;
      node.expand?.();
      node.children.forEach((child) => open(child, left - 1));
    };
    workspace.children.forEach((child) => open(child, depth));
    if (app.sidebar?.visible) app.sidebar.toggleVisibility();
    (globalThis.raf ?? app.raf)?.scheduleFullRedraw?.();
    const answer = await trace.engine.query('SELECT count(*) AS slices FROM slice');
    return {
      tracks: tree(workspace),
      slices: Number(answer.firstRow({ slices: 0 }).slices),
      // A number in some versions, texts in others.
      errors: [trace.traceInfo?.importErrors, trace.loadingErrors].flat().filter(Boolean),
      dialog: document.querySelector('.pf-modal-dialog, .modal-dialog')?.innerText ?? null,
    };
  }, Number(depth));
  await sleep(2500);
  const { data } = await tell('Page.captureScreenshot', { format: 'png' });
  fs.writeFileSync(picture, Buffer.from(data, 'base64'));
  found.errors.push(...heard);
  process.stdout.write(`${JSON.stringify(found)}\n`, () => leave(0));
} catch (error) {
  leave(1, `${error.message}\n${heard.join('\n')}`);
}
