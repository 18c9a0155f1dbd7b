// Fills the page.

// The part of the page with more about a line of the verdict.
const PARTS = {
  where: 'labels', reaches: 'delays', cause: 'ranks', also: 'ranks', 'start-up': 'time', ending: 'time', time: 'time', 'GPU time': 'time',
  efficiency: 'ranks', 'of GPUs': 'tables', steps: 'steps', complete: 'missing', clocks: 'clocks', why: 'ranks', work: 'ranks',
  network: 'ranks', CPUs: 'ranks',
};
const TABLES = {
  time: 'time by rank', step_series: 'steps', step_distribution: 'lengths of steps', pairs: 'pairs of ranks',
  counters: 'counters', counter_points: 'means of counters',
  blame: 'what each rank causes', ranks: 'recorded times of ranks', summary: 'times by name', collectives: 'collectives',
  messages: 'messages', gpu: 'GPUs', kernel_classes: 'kernels by class', clocks: 'clocks', integrity: 'losses',
};
// Where nothing was recorded.
const MISSING = {
  summary: 'No rows with times are recorded. To record: rpd-collect with --trace or --backend.',
  collectives: 'No collectives are recorded. To record: rpd-collect, of programs that use MPI or RCCL.',
  messages: 'No messages are recorded. To record: rpd-collect, of programs that send messages by MPI.',
  gpu: 'No kernels and copies are recorded. To record: rpd-collect --backend.',
  clocks: 'The run does not describe its clocks. To record: rpd-collect.',
  ranks: 'No rows with times are recorded. To record: rpd-collect with --trace or --backend.',
};

const drawnTables = [];
let heatMap;

function showTables(facts) {
  for (const [key, name] of Object.entries(TABLES)) {
    const place = document.getElementById(`table-${key}`);
    const table = facts.tables[key];
    const subject = { summary: 'summary', gpu: 'gpu' }[key] ?? key;
    if (table?.rows > 0) drawnTables.push(new DataTable(place, name, table, facts.texts));
    else if (key === 'blame' && facts.no_calls) place.append(element('p', facts.no_calls, 'note'));
    else if (MISSING[key]) place.append(element('p', MISSING[key], 'note'));
    for (const note of facts.notes[subject] ?? []) place.append(element('p', note, 'note'));
  }
  document.getElementById('gpu-more').hidden = !(facts.tables.kernel_classes?.rows > 0);
}

function showVerdict(facts) {
  document.getElementById('head').textContent = facts.head;
  document.title = facts.head;
  const lines = document.getElementById('lines');
  facts.lines.forEach(([label, text], place) => {
    const isHeadline = place === 0;
    const dt = element('dt', undefined, isHeadline ? 'headline' : '');
    const target = isHeadline ? (facts.named.is_finding ? 'labels' : 'ranks') : PARTS[label];
    if (target) {
      const link = element('a', label);
      link.href = `#${target}`;
      dt.append(link);
    } else dt.textContent = label;
    lines.append(dt, element('dd', text, isHeadline ? 'headline' : ''));
  });
  document.getElementById('next').append(...facts.next.map((text) => element('li', text)));
}

function showTime(facts) {
  const place = document.getElementById('time-map');
  if (!facts.heat || facts.tables.time.rows === 0) {
    place.replaceChildren(element('p', 'No rows with times are recorded. To record: rpd-collect with --trace or --backend.', 'note'));
    return;
  }
  const rest = facts.heat.has_gpus
    ? 'Kernels count as computing even if a call waits meanwhile; a rank that has a GPU and does nothing recorded has an idle GPU.'
    : 'A rank computes outside of the calls that are recorded. Copies and idle GPUs are not recorded: rpd-collect --backend.';
  const waiting = facts.no_calls ? ` Waiting is not known: ${facts.no_calls.replace(/^waiting: /, '')}.` : ' In a call, a rank waits first and then communicates; how long, follows from the analysis.';
  document.getElementById('time-explained').textContent = `Each row is a rank, or a folded node; each cell is ${shownTime(facts.heat.length_ns / facts.heat.cells)}. Times count from the first event of the run, counters included. ${rest}${waiting}`;
  facts.heat.knows_waiting = !facts.no_calls;
  heatMap = new HeatMap(facts.heat, facts.tables.time, facts.texts, facts.named.is_finding ? facts.named.ranks : []);
}

function showSteps(facts) {
  const place = document.getElementById('steps-plots');
  if (facts.no_steps) {
    place.replaceChildren(element('p', facts.no_steps, 'note'));
    return;
  }
  const series = facts.tables.step_series;
  const column = (key) => series.columns.find((found) => found.key === key);
  const several = facts.steps_in_row > 1 ? ` A point is the mean of ${grouped(facts.steps_in_row)} steps, with the shortest and the longest of them.` : '';
  document.getElementById('steps-explained').textContent = `The length of a step is the mean of the ranks.${several}`;
  const steps = column('step').values;
  const lengths = document.getElementById('plot-lengths');
  const whole = facts.steps_in_row > 1 ? { title: 'shortest to longest', low: column('shortest_ns'), high: column('longest_ns') } : undefined;
  drawSeries(lengths, 'Length of the steps', steps, whole, [{ style: 'median', title: 'length', values: column('length_ns').values }]);
  const curves = [{ style: 'median', title: 'median rank', values: column('work_p50_ns').values }];
  [1, 2, 3].forEach((number) => {
    const found = column(`named_${number}_work_ns`);
    if (found) curves.push({ style: `named-${number}`, title: found.title.replace('work of ', ''), values: found.values });
  });
  const band = { title: '5 to 95 % of the ranks', low: column('work_p5_ns'), high: column('work_p95_ns') };
  drawSeries(document.getElementById('plot-work'), 'Work of a rank in the steps', steps, band, curves);
  drawDistribution(document.getElementById('plot-distribution'), facts.tables.step_distribution);
}

function showDelays(facts) {
  const labels = document.getElementById('labels-table');
  const matrix = document.getElementById('matrix');
  if (facts.no_calls) {
    labels.append(element('p', facts.no_calls, 'note'));
    matrix.append(element('p', facts.no_calls, 'note'));
    document.getElementById('delays-pairs').hidden = true;
    return;
  }
  const [rank] = facts.named.ranks;
  if (facts.tables.labels?.rows > 0) {
    const whose = facts.named.is_finding ? `Rank ${rank} is named by the verdict.` : `No rank is named; rank ${rank} made the others wait longest.`;
    labels.append(element('p', `${whose} Its mean work in a step is beside what is typical of the ranks.`, 'explained'));
    drawLabels(labels, facts.tables.labels, facts.texts, rank);
  } else labels.append(element('p', 'No work of a rank could be compared: no rank with a number made others wait.', 'note'));
  const { unit } = facts.matrix;
  const explained = `A row delays a column: the time that ranks of the column waited because of longer work of the row, ${unit} by ${unit}. Waiting that is passed on by others is not in it. A stronger colour is a longer time.`;
  matrix.append(element('p', explained, 'explained'));
  drawMatrix(matrix, facts.matrix);
  const compared = facts.matrix.compared_causes;
  document.getElementById('pairs-explained').textContent = facts.tables.pairs.rows === 0
    ? 'No rank delays another one by longer work.'
    : compared ? `Pairs of the ${grouped(compared)} ranks that delay others most.` : 'All pairs, or the 1,000 with the most time.';
}

function showCounters(facts) {
  const { counters } = facts;
  if (!counters) {
    document.getElementById('counters-parts').replaceChildren(element('p', facts.no_counters, 'note'));
    return;
  }
  const { rank, shown, cells } = counters;
  const whose = facts.named.is_finding ? `Rank ${rank} is named by the verdict.` : `No rank is named; rank ${rank} made the others wait longest.`;
  const chosen = 'Of its node, its GPUs and its processes, at most ten counters are shown: those whose mean over the run differs most from the median of the others, as a share of the larger of both.';
  const points = `A point is the mean in ${shownTime(counters.length_ns / cells)}. A sampled value counts until the next one, at most 2 s; a value of a kernel counts at its start.`;
  const notes = [
    counters.are_gpus_known ? '' : 'Which GPU the rank uses is not recorded: all GPUs of its node are compared.',
    counters.lacks_others ? 'There are too many others to draw their median.' : '',
    counters.compared ? `Of a process with more counters, the first ${grouped(counters.compared)} are compared.` : '',
  ];
  document.getElementById('counters-explained').textContent = [whose, chosen, points, ...notes].filter(Boolean).join(' ');
  const table = facts.tables.counter_points;
  const column = (key) => table.columns.find((found) => found.key === key).values;
  const [means, medians] = [column('value'), column('median')];
  shown.forEach((counter, place) => {
    const of = (values) => values.subarray(place * cells, (place + 1) * cells);
    drawCounter(document.getElementById('counters-plots'), counter, counters, of(means), of(medians));
  });
}

function showMissing(facts) {
  const entry = ([subject, reason, how]) => {
    const item = element('li');
    item.append(element('strong', subject), `: ${reason}`);
    if (how) item.append('; to record: ', element('code', how));
    return item;
  };
  const list = document.getElementById('unavailable');
  list.append(...facts.unavailable.map(entry));
  if (facts.unavailable.length === 0) list.replaceWith(element('p', 'Nothing.', 'note'));
}

function connectTheme() {
  const button = document.getElementById('theme');
  const themes = ['system', 'light', 'dark'];
  let theme = 0;
  button.addEventListener('click', () => {
    theme = (theme + 1) % themes.length;
    button.textContent = `Theme: ${themes[theme]}`;
    if (theme === 0) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = themes[theme];
    heatMap?.restyle();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => heatMap?.restyle());
  const print = (isPrinted) => {
    drawnTables.forEach((table) => table.print(isPrinted));
    heatMap?.restyle();
  };
  window.addEventListener('beforeprint', () => print(true));
  window.addEventListener('afterprint', () => print(false));
  matchMedia('print').addEventListener('change', (query) => print(query.matches));
}

async function showPage() {
  const facts = await unpackFacts();
  showVerdict(facts);
  document.getElementById('main').hidden = false;
  showTime(facts);
  showSteps(facts);
  showDelays(facts);
  showCounters(facts);
  showTables(facts);
  showMissing(facts);
  connectTheme();
  document.documentElement.dataset.ready = 'yes';
}

showPage().catch((error) => {
  const problem = document.getElementById('problem');
  problem.textContent = `The page cannot be shown: ${error.message}. It needs Chromium 80, Firefox 113, Safari 16.4, or a later version.`;
  problem.hidden = false;
  throw error;
});
