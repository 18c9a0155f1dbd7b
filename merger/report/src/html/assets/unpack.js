// Reads the data of the page: texts and descriptions of tables from JSON, numbers from deflated arrays.

async function unpackArrays() {
  const element = document.getElementById('arrays');
  const packed = atob(element.textContent.trim());
  element.textContent = '';
  const bytes = new Uint8Array(packed.length);
  for (let place = 0; place < packed.length; place += 1) bytes[place] = packed.charCodeAt(place);
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Response(inflated).arrayBuffer();
}

// Returns the array at a place of the buffer: [type, first byte, number of values].
function arrayAt(buffer, [type, first, length]) {
  const types = { u1: Uint8Array, u4: Uint32Array, f8: Float64Array };
  return new types[type](buffer, first, length);
}

async function unpackFacts() {
  const facts = JSON.parse(document.getElementById('facts').textContent);
  const buffer = await unpackArrays();
  for (const table of Object.values(facts.tables)) {
    for (const column of table.columns) column.values = arrayAt(buffer, column.values);
  }
  for (const part of [facts.heat, facts.matrix]) {
    if (!part) continue;
    for (const [key, value] of Object.entries(part)) {
      if (Array.isArray(value) && ['u1', 'u4', 'f8'].includes(value[0]) && value.length === 3) {
        if (key !== 'groups') part[key] = arrayAt(buffer, value);
      }
    }
  }
  return facts;
}
