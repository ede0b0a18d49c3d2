// The page: translates what is typed, and shows which words belong together. All text is set with textContent, so
// nothing that is typed or translated is read as markup.
"use strict";

const PAUSE = 300; // milliseconds without typing before text is translated
const ALTERNATIVES = 3;
const DOUBTFUL = 0.25; // a word that is right with a smaller probability is marked
const SURE = 70; // percent: a language detected with less confidence is shown as a guess

const at = (id) => document.getElementById(id);
const [source, target, text, output, mirror] = ["source", "target", "text", "output", "mirror"].map(at);
let languages = [];
let settings = {};
let only = null; // the names of the two languages if the server has one pair, and there is nothing to choose
let running = null; // the request that has not been answered
let timer = 0;
let shown = ""; // the translation on display
let textLanguage = ""; // the language of the text that it translates

function made(name, content, properties = {}) {
  const element = document.createElement(name);
  if (content !== undefined) element.textContent = content;
  return Object.assign(element, properties);
}

function fail(message) {
  at("error").textContent = message;
  at("error").hidden = !message;
  if (message) at("status").textContent = "";
}

// An answer other than 200. `sentence` is the server's, which names parameters of its interface.
class Refused extends Error {
  constructor(status, sentence, seconds) {
    super(sentence);
    Object.assign(this, { status, sentence, seconds });
  }
}

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  const answer = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Refused(reply.status, answer.error || "", reply.headers.get("Retry-After"));
  return answer;
}

// Returns a message that says what the user can do about an error.
function explained(error, otherwise) {
  if (!(error instanceof Refused)) return error.message;
  const wait = error.seconds ? `Try again in ${error.seconds} s.` : "Try again later.";
  const sentences = {
    403: at("key").value ? "The server does not know this API key." : "Enter an API key: this server needs one.",
    429: `These were too many requests. ${wait}`,
    500: "The server failed to translate this. Try again, or tell its operator.",
    503: `The server is busy. ${wait}`,
    504: "This took the server too long. Translate less at a time.",
  };
  return sentences[error.status] || otherwise(error.sentence);
}

// Languages.

const named = (code) => (languages.find((language) => language.code === code) || { name: code }).name;
const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* not allowed here */ } };
const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };

function fill(select, codes, chosen) {
  select.replaceChildren(...codes.map((code) => made("option", code === "auto" ? "Detect language" : named(code), { value: code })));
  select.value = codes.includes(chosen) ? chosen : codes[0];
}

// Returns whether all models that may translate the text have an ability (the name of a list in /languages).
function everyModel(ability) {
  const from = languages.filter((language) => source.value === "auto" || language.code === source.value);
  const able = from.filter((language) => language.targets.includes(target.value));
  return able.length > 0 && able.every((language) => language[ability].includes(target.value));
}

const noWayBack = () => `This server does not translate from ${named(target.value)}, so the languages cannot be swapped.`;

function fillTargets(chosen) {
  const from = source.value === "auto" ? languages : languages.filter((language) => language.code === source.value);
  fill(target, [...new Set(from.flatMap((language) => language.targets))], chosen);
  const back = languages.some((language) => language.code === target.value && language.targets.length);
  at("swap").ariaDisabled = String(!back);
  at("swap").title = back ? "Swap the languages" : noWayBack();
  text.lang = source.value === "auto" ? "" : source.value;
  at("address").hidden = !everyModel("formality");
}

function chooseLanguages(from, to) {
  fill(source, ["auto", ...languages.filter((language) => language.targets.length).map((language) => language.code)], from);
  fillTargets(to);
  remember("source", source.value);
  remember("target", target.value);
}

// Translating.

const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

function changed() {
  clearTimeout(timer);
  if (running) running.abort();
  running = null;
  fail("");
  at("status").textContent = "";
  edit(false);
  show(mirror, text.value, []);
  const count = [...text.value].length;
  const over = settings.charLimit ? count - settings.charLimit : 0;
  at("count").textContent = settings.charLimit ? `${count} / ${settings.charLimit}` : `${count}`;
  at("count").classList.toggle("over", over > 0);
  at("clear").hidden = !text.value;
  if (!text.value.trim() || over > 0) withdraw();
  else outdate();
  if (over > 0) fail(`Remove ${counted(over, "character")}: at most ${counted(settings.charLimit, "character")} can be translated at a time.`);
  else if (text.value.trim()) timer = setTimeout(translate, PAUSE);
}

// Marks the translation as outdated: the text has changed.
function outdate() {
  output.classList.add("stale");
  at("copy").disabled = at("correct").disabled = true;
  at("others").hidden = at("doubts").hidden = true;
}

// Clears the translation.
function withdraw() {
  put("", []);
  listAlternatives([]);
}

function put(translation, links, confidences = []) {
  shown = translation;
  output.lang = target.value;
  output.classList.remove("stale");
  const doubtful = confidences.filter(([, , confidence]) => confidence < DOUBTFUL);
  show(output, shown, links.map(([, , begin, end]) => [begin, end]), links.map(([begin, , from]) => [begin, from]), doubtful);
  listDoubtful(doubtful);
  show(mirror, text.value, links.map(([begin, end]) => [begin, end]), links.map(([begin, , from]) => [begin, from]));
  at("links-hint").hidden = !links.length;
  at("copy").disabled = at("correct").disabled = !shown;
  at("copy").textContent = "Copy";
}

// Lists the doubtful words for users who cannot see the highlighting.
function listDoubtful(doubtful) {
  const characters = [...shown];
  const words = doubtful.map(([begin, end]) => characters.slice(begin, end).join("").replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, ""));
  const list = [...new Set(words)].filter(Boolean).join(", ");
  at("doubts").textContent = list && `Probably wrong: ${list}`;
  at("doubts").hidden = !list;
}

// Alternatives of several sentences would be arbitrary combinations.
function isOneSentence(content) {
  const line = content.trim();
  if (line.includes("\n")) return false;
  return !window.Intl || !Intl.Segmenter || [...new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(line)].length === 1;
}

async function translate() {
  const request = new AbortController();
  if (running) running.abort();
  running = request;
  const asked = { q: text.value, source: source.value, target: target.value, alignments: true };
  if (isOneSentence(text.value)) asked.alternatives = ALTERNATIVES;
  if (everyModel("formality") && at("formality").value) asked.formality = at("formality").value;
  if (everyModel("confidence")) asked.confidence = true;
  if (at("key").value) asked.api_key = at("key").value;
  at("status").textContent = "Translating…";
  try {
    const answer = await ask("translate", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), signal: request.signal,
    });
    if (running === request) present(answer);
  } catch (error) {
    if (running === request && error.name !== "AbortError") {
      withdraw();
      fail(explained(error, () => "The server cannot translate this text."));
    }
  } finally {
    if (running === request) running = null;
  }
}

function present(answer) {
  fail("");
  const detected = answer.detectedLanguage;
  // A short text may be in any of the languages that are translated into the target, or in the target itself.
  const candidates = 1 + languages.filter((language) => language.targets.includes(target.value)).length;
  const unlikely = detected && detected.confidence < SURE / candidates && /\p{L}/u.test(text.value);
  if (unlikely && !only) {
    withdraw();
    fail("The text seems to be in another language. If it is not, choose its language instead of detecting it.");
    return;
  }
  textLanguage = detected && source.value === "auto" ? detected.language : source.value;
  put(answer.translatedText, answer.alignments || [], answer.confidences || []);
  if (textLanguage === target.value) at("correct").disabled = true; // the text stays unchanged
  if (unlikely) at("status").textContent = `This may not be ${only[0]}`;
  else if (!detected || !detected.confidence || (only && detected.confidence >= SURE)) at("status").textContent = "";
  else at("status").textContent = `${detected.confidence < SURE ? "Probably" : "Detected"} ${named(detected.language)}`;
  listAlternatives(answer.alternatives || []);
}

function listAlternatives(others) {
  const button = (label, press) => {
    const pressed = made("button", label, { type: "button" });
    pressed.addEventListener("click", () => press(pressed));
    return pressed;
  };
  at("alternatives").replaceChildren(...others.map((other, i) => {
    const item = made("li");
    const use = button("Use", () => {
      const before = shown;
      put(other, []);
      listAlternatives(others.map((text, k) => (k === i ? before : text)));
      at("copy").focus();
    });
    item.append(made("span", other, { lang: target.value, dir: "auto" }), use, button("Copy", (pressed) => copy(other, pressed)));
    return item;
  }));
  at("others").hidden = !others.length;
}

async function copy(content, button) {
  try {
    await navigator.clipboard.writeText(content);
  } catch { // only pages from this machine or over HTTPS may use the clipboard
    const area = made("textarea", content, { className: "visually-hidden" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = "Copied";
}

// Corrections.

function edit(editing) {
  at("correction").hidden = at("save").hidden = at("cancel").hidden = !editing;
  output.hidden = at("copy").hidden = editing;
  at("correct").hidden = editing || !settings.suggestions;
  if (editing) at("others").hidden = true;
}

function beginCorrection() {
  edit(true);
  Object.assign(at("correction"), { value: shown, lang: target.value });
  at("correction").focus();
}

function endCorrection() {
  edit(false);
  at("others").hidden = !at("alternatives").childElementCount;
  at("correct").focus();
}

async function saveCorrection() {
  const [q, s] = [text.value, at("correction").value];
  if (!s.trim()) {
    fail("Write the right translation, or cancel.");
    return;
  }
  const asked = { q, s, source: textLanguage, target: target.value };
  if (at("key").value) asked.api_key = at("key").value;
  try {
    await ask("suggest", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked) });
    if (text.value !== q || at("correction").hidden) return; // the text has changed meanwhile
    fail("");
    put(s, []);
    endCorrection();
    at("status").textContent = "Correction saved";
  } catch (error) {
    fail(explained(error, (sentence) => `The server cannot save this correction. ${sentence}`));
  }
}

at("correct").addEventListener("click", beginCorrection);
at("cancel").addEventListener("click", endCorrection);
at("save").addEventListener("click", saveCorrection);
at("correction").addEventListener("keydown", (event) => {
  if (event.key === "Escape") endCorrection();
  if (event.key === "Enter" && event.ctrlKey) saveCorrection();
});

// Linked words. Places count characters; a character may take two units of a JavaScript string.

function show(pane, content, places, links = [], doubtful = []) {
  const characters = [...content];
  const words = new Map(places.map((place, i) => [place[0], { end: place[1], links: [] }]));
  places.forEach((place, i) => words.get(place[0]).links.push(links[i].join(" ")));
  for (const [begin, end] of doubtful) words.set(begin, { end, links: [], ...words.get(begin), doubtful: true });
  const parts = [];
  let done = 0;
  for (const begin of [...words.keys()].sort((a, b) => a - b)) {
    const { end, links: linked, doubtful: isDoubtful } = words.get(begin);
    if (begin < done) continue;
    parts.push(characters.slice(done, begin).join(""));
    const word = made("span", characters.slice(begin, end).join(""));
    if (linked.length) word.dataset.links = linked.join(",");
    if (isDoubtful) word.className = "doubtful";
    parts.push(word);
    done = end;
  }
  parts.push(characters.slice(done).join(""));
  if (pane === mirror) parts.push("\n"); // as tall as a text area whose last line is empty
  pane.replaceChildren(...parts);
}

function highlight(word) {
  for (const marked of document.querySelectorAll(".linked")) marked.classList.remove("linked");
  if (!word) return;
  const links = new Set(word.dataset.links.split(","));
  for (const other of document.querySelectorAll("[data-links]")) {
    other.classList.toggle("linked", other.dataset.links.split(",").some((link) => links.has(link)));
  }
}

// The text area covers its mirror, so the word under the pointer is found by its place.
function wordAt(x, y) {
  const within = (box) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
  return [...mirror.querySelectorAll("[data-links]")].find((word) => [...word.getClientRects()].some(within));
}

function wordAtCaret() {
  let place = 0;
  for (const node of mirror.childNodes) {
    place += node.textContent.length;
    if (place >= text.selectionStart) return node.dataset ? node : null;
  }
  return null;
}

output.addEventListener("pointerover", (event) => highlight(event.target.closest("[data-links]")));
output.addEventListener("pointerleave", () => highlight(null));
text.addEventListener("pointermove", (event) => highlight(wordAt(event.clientX, event.clientY)));
text.addEventListener("pointerleave", () => highlight(null));
text.addEventListener("keyup", (event) => { if (event.key.startsWith("Arrow")) highlight(wordAtCaret()); });
text.addEventListener("scroll", () => { mirror.scrollTop = text.scrollTop; });

// Files.

async function translateFile(file) {
  const form = new FormData();
  form.append("file", file);
  form.append("source", source.value);
  form.append("target", target.value);
  if (everyModel("formality") && at("formality").value) form.append("formality", at("formality").value);
  if (at("key").value) form.append("api_key", at("key").value);
  const tell = (...parts) => { at("download").replaceChildren(...parts); at("download").hidden = !parts.length; };
  tell();
  fail("");
  if (!settings.supportedFilesFormat.some((ending) => file.name.toLowerCase().endsWith(ending))) {
    fail(`${file.name} cannot be translated: choose a file that ends in ${settings.supportedFilesFormat.join(", ")}.`);
    return;
  }
  tell(`Translating ${file.name}…`);
  try {
    const answer = await ask("translate_file", { method: "POST", body: form });
    // The address may name the server as it sees itself; the path is what counts.
    const name = new URL(answer.translatedFileUrl).pathname.split("/").pop();
    const link = made("a", `Download the translation of ${file.name}`, { href: `download_file/${name}`, download: "" });
    tell(link);
    link.focus();
  } catch (error) {
    tell();
    const why = (sentence) => sentence.replace(/^Invalid request: /, "").replace(/\.$/, "");
    fail(explained(error, (sentence) => `${file.name} cannot be translated: ${why(sentence)}.`));
  }
}

at("file").addEventListener("change", () => { if (at("file").files[0]) translateFile(at("file").files[0]); at("file").value = ""; });
document.addEventListener("dragover", (event) => { event.preventDefault(); at("drop").hidden = !event.dataTransfer.types.includes("Files"); });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) at("drop").hidden = true; });
document.addEventListener("drop", (event) => {
  at("drop").hidden = true;
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  translateFile(event.dataTransfer.files[0]);
});

// The other controls.

text.addEventListener("input", changed);
source.addEventListener("change", () => { chooseLanguages(source.value, target.value); changed(); });
target.addEventListener("change", () => { chooseLanguages(source.value, target.value); changed(); });
at("formality").addEventListener("change", () => { remember("formality", at("formality").value); changed(); });
at("key").addEventListener("change", changed);
at("key-form").addEventListener("submit", (event) => { event.preventDefault(); changed(); });
at("clear").addEventListener("click", () => { text.value = ""; changed(); text.focus(); });
at("swap").addEventListener("click", () => {
  if (at("swap").ariaDisabled === "true") {
    fail(noWayBack());
    return;
  }
  const back = languages.find((language) => language.code === target.value).targets;
  const to = back.includes(source.value) ? source.value : back[0];
  if (shown) text.value = shown;
  chooseLanguages(target.value, to);
  changed();
});
at("copy").addEventListener("click", () => copy(shown, at("copy")));

(async () => {
  try {
    [languages, settings] = await Promise.all([ask("languages"), ask("frontend/settings")]);
  } catch (error) {
    fail(error.message);
    return;
  }
  at("key-form").hidden = !settings.keyRequired;
  at("file").accept = settings.supportedFilesFormat.join(",");
  const pairs = languages.flatMap((language) => language.targets.map((to) => [language.code, to]));
  only = pairs.length === 1 ? pairs[0].map(named) : null;
  if (only) at("pair").textContent = only.join(" → ");
  at("pair").hidden = !only;
  at("languages").hidden = Boolean(only);
  at("formality").value = remembered("formality") || "";
  chooseLanguages((!only && remembered("source")) || "auto", remembered("target") || settings.language.target.code);
  changed();
})();
