// The page: translates typed text with an engine in a separate thread, and later also works offline.
"use strict";

const MODEL = JSON.parse(document.getElementById("files").textContent);
const WORKER = "worker/translator-worker.js";
const LINES = 16; // translated at a time
const PAIR = { from: "source", to: "target" };
const [text, output, status, error] = ["text", "output", "status", "error"].map((id) => document.getElementById(id));
const pending = new Map();
let worker, serial = 0, running = false, changed = false;

// Sends the engine a message; its answer has the same number.
function call(name, ...args) {
  return new Promise((accept, reject) => {
    pending.set(++serial, { accept, reject });
    worker.postMessage({ id: serial, name, args });
  });
}

async function file(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name} cannot be read: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

async function load() {
  const start = performance.now();
  if (location.protocol === "file:") {
    throw new Error("a browser reads no model from a file:// page; run python3 -m http.server in this folder");
  }
  worker = new Worker(WORKER);
  worker.onmessage = ({ data: { id, result, error } }) => {
    const { accept, reject } = pending.get(id);
    pending.delete(id);
    error ? reject(new Error(error.message)) : accept(result);
  };
  worker.onerror = (event) => fail(new Error(event.message || "the engine cannot be loaded"));
  const [model, shortlist, ...vocabs] = await Promise.all([
    file(MODEL.model), MODEL.shortlist ? file(MODEL.shortlist) : new ArrayBuffer(0), ...MODEL.vocabs.map(file),
    call("initialize", { cacheSize: 1 << 14 }),
  ]);
  vocabs.pop();
  await call("loadTranslationModel", PAIR, { model, shortlist, vocabs, config: MODEL.settings });
  // The engine prepares the matrices in its first translation.
  await call("translate", { models: [PAIR], texts: [{ text: ".", html: false }] });
  status.textContent = `Ready after ${((performance.now() - start) / 1000).toFixed(1)} seconds.`;
  document.body.dataset.state = "ready";
  update();
  keep().catch(() => {}); // without copies of the files, the page only works online
}

// Keeps a copy of each file for offline visits. Browsers allow this with HTTPS and on localhost.
async function keep() {
  if (!navigator.serviceWorker) return;
  const { scope } = await navigator.serviceWorker.register("offline.js");
  if (!navigator.serviceWorker.controller) { // otherwise it has kept what this page has loaded
    const engine = [WORKER, "worker/bergamot-translator-worker.js", "worker/bergamot-translator-worker.wasm"];
    const files = [MODEL.model, MODEL.shortlist, ...MODEL.vocabs].filter(Boolean);
    await (await caches.open(scope)).addAll([location.pathname, "page.css", "page.js", ...engine, ...files]);
  }
  await navigator.serviceWorker.ready;
  document.body.dataset.offline = "ready";
}

// Models trained on clean text mistranslate emoji. So emoji are copied, as in vtrans itself.
const EMOJI = /((?:\s*(?:\p{Emoji_Presentation}|\p{Extended_Pictographic}\ufe0f)(?:\p{Emoji_Modifier}|[\u200d\ufe0f])*)+\s*)/u;
const SENTENCE_END = /[\p{Sentence_Terminal}…]["'”’)\]]*$/u;
const wordsOf = (line) => line.split(/\s+/).filter(Boolean);

// Splits a line at the emoji that end its sentences, and returns the texts and these emoji. A text lists the emoji
// inside it, each with the number of words before it.
function divided(line) {
  const parts = line.split(EMOJI), texts = [{ text: parts[0], inside: [] }], between = []; // every second part is emoji
  for (let i = 1; i < parts.length; i += 2) {
    const [emoji, next] = [parts[i], parts[i + 1]], last = texts.at(-1);
    if (!last.text.trim() || !next.trim() || SENTENCE_END.test(last.text)) {
      between.push(emoji);
      texts.push({ text: next, inside: [] });
    } else {
      last.inside.push({ emoji: emoji.trim(), words: wordsOf(last.text).length });
      last.text += (/\s/.test(emoji) && /^[\p{L}\p{N}]/u.test(next) ? " " : "") + next;
    }
  }
  return { texts, between };
}

// Returns a translation with the emoji from inside the source text, each after the same share of the words.
function withEmoji(translation, { text, inside }) {
  const words = wordsOf(translation), share = words.length / wordsOf(text).length;
  for (const one of inside.toReversed()) words.splice(Math.round(one.words * share), 0, one.emoji);
  return inside.length ? words.join(" ") : translation;
}

// Returns the texts of a line for the model, and a function that makes the line's translation from its answers.
function read(line) {
  const { texts, between } = divided(line);
  return {
    texts: texts.map((part) => part.text).filter((part) => part.trim()),
    written: (answers) => {
      const translated = texts.map((part) => (part.text.trim() ? withEmoji(answers.shift(), part) : part.text));
      return line.trim() ? translated.map((part, i) => part + (between[i] ?? "")).join("") : "";
    },
  };
}

// Translates the current text, and again if it has changed meanwhile.
async function update() {
  changed = true;
  if (running || document.body.dataset.state !== "ready") return;
  running = true;
  error.textContent = "";
  output.setAttribute("aria-busy", "true"); // a screen reader waits for the whole translation
  try {
    while (changed) {
      changed = false;
      const start = performance.now(), lines = text.value.split("\n"), translated = [];
      for (let i = 0; i < lines.length && !changed; i += LINES) {
        const part = lines.slice(i, i + LINES).map(read);
        const texts = part.flatMap((line) => line.texts).map((text) => ({ text, html: false }));
        const answers = texts.length ? await call("translate", { models: [PAIR], texts }) : [];
        const found = answers.map((answer) => answer.target.text);
        translated.push(...part.map((line) => line.written(found)));
        output.value = translated.join("\n");
      }
      const words = wordsOf(text.value).length, seconds = (performance.now() - start) / 1000;
      if (!changed && words) status.textContent = `${words} words in ${seconds.toFixed(2)} seconds.`;
    }
  } finally {
    running = false;
    output.removeAttribute("aria-busy");
  }
}

function fail(reason) {
  status.textContent = "";
  error.textContent = `The model cannot be used: ${reason.message}.`;
}

text.addEventListener("input", () => {
  if (document.body.dataset.state === "ready") status.textContent = ""; // the status was about the previous text
  update().catch(fail);
});
load().catch(fail);
