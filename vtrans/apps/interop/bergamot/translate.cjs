// Runs Bergamot in Node for engine.py: translates each text in a JSON list on standard input, and writes each
// translation as a line of JSON. The arguments are the worker, the settings and the model's files.
const {Worker} = require("node:worker_threads"), {readFileSync} = require("node:fs");
const [path, config, model, shortlist, ...vocabs] = process.argv.slice(2);
const worker = new Worker(path), pending = new Map();
const call = (name, ...args) => new Promise((accept, reject) => {
  pending.set(pending.size + 1, {accept, reject});
  worker.postMessage({id: pending.size, name, args});
});
const fail = error => { console.error("Error: " + error.message); process.exit(1); };
worker.on("message", ({id, result, error}) => error ? pending.get(id).reject(error) : pending.get(id).accept(result));
worker.on("error", fail);
const read = name => new Uint8Array(readFileSync(name)).buffer;
(async () => {
  const pair = {from: "a", to: "b"};
  await call("initialize", {cacheSize: 0});
  const lexicon = shortlist ? read(shortlist) : new ArrayBuffer(0);
  const files = {model: read(model), shortlist: lexicon, vocabs: vocabs.map(read), config: JSON.parse(config)};
  await call("loadTranslationModel", pair, files);
  for (const text of JSON.parse(readFileSync(0, "utf-8"))) {
    const [{target}] = await call("translate", {models: [pair], texts: [{text, html: false}]});
    console.log(JSON.stringify(target.text));
  }
  process.exit(0);
})().catch(fail);
