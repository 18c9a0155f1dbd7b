// A Chromium without a window, driven over a pipe: no port is open, and no host but the local one can be reached.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';

// Starts Chromium: the program that RPD_CHROMIUM names, or chromium. `leave(status, reason)` ends it and this program.
export function startChromium({ width, height, patience, what, close = () => {} }) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'rpd-chromium-'));
  const browser = spawn(
    process.env.RPD_CHROMIUM || 'chromium',
    [
      '--headless', '--remote-debugging-pipe', '--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu',
      '--enable-unsafe-swiftshader', '--no-first-run', '--disable-background-networking', '--disable-component-update',
      '--disable-sync', '--hide-scrollbars', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
      `--user-data-dir=${profile}`, `--window-size=${width},${height}`, 'about:blank',
    ],
    // What it leaves behind when it is killed goes with the profile.
    { stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'], env: { ...process.env, TMPDIR: profile } },
  );
  let said = '';
  browser.stderr.on('data', (text) => (said = (said + text).slice(-4000)));
  browser.on('error', (error) => leave(1, `chromium cannot be started: ${error.message}`));
  browser.on('exit', (code) => leaving || leave(1, `chromium ended with ${code}:\n${said}`));

  let leaving = false;
  function leave(status, reason) {
    if (leaving) return;
    leaving = true;
    if (reason) console.error(reason);
    browser.kill('SIGKILL');
    close();
    setTimeout(() => {
      fs.rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
      process.exit(status);
    }, 100);
  }
  setTimeout(() => leave(1, `${what} did not come up within ${patience / 1000} s\n${said}`), patience);

  const [, , , toBrowser, fromBrowser] = browser.stdio;
  const answers = new Map();
  const heard = [];
  let messages = 0, session, rest = '';
  fromBrowser.setEncoding('utf8');
  fromBrowser.on('data', (text) => {
    const all = (rest + text).split('\0');
    rest = all.pop();
    for (const message of all.map((one) => JSON.parse(one))) {
      if (message.id) answers.get(message.id)?.(message);
      else if (message.method === 'Runtime.exceptionThrown') {
        const { text, exception } = message.params.exceptionDetails;
        heard.push(`exception: ${exception?.description ?? text}`.slice(0, 500));
      } else if (message.method === 'Log.entryAdded') {
        heard.push(`log: ${message.params.entry.text}`.slice(0, 500));
      }
    }
  });
  function tell(method, params = {}) {
    const id = ++messages;
    toBrowser.write(`${JSON.stringify({ id, method, params, sessionId: session })}\0`);
    return new Promise((resolve, reject) => {
      answers.set(id, (message) => {
        answers.delete(id);
        if (message.error) reject(new Error(`${method}: ${message.error.message}`));
        else resolve(message.result);
      });
    });
  }
  // Opens a page that has nothing yet.
  async function openPage() {
    const { targetId } = await tell('Target.createTarget', { url: 'about:blank' });
    session = (await tell('Target.attachToTarget', { targetId, flatten: true })).sessionId;
    await tell('Runtime.enable');
    await tell('Page.enable');
    await tell('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
  }
  // Runs a function in the page; it may return a promise, and must return what JSON has.
  async function inPage(code, ...args) {
    const expression = `(${code})(...${JSON.stringify(args)})`;
    const { result, exceptionDetails } = await tell('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }
  return { tell, openPage, inPage, heard, leave };
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
