// The page: translates what is typed, and shows which words belong together. All text is set with textContent, so
// nothing that is typed or translated is read as markup.
"use strict";

const PAUSE = 300; // milliseconds without typing before text is translated
const ALTERNATIVES = 3;

const at = (id) => document.getElementById(id);
const [source, target, text, output, mirror] = ["source", "target", "text", "output", "mirror"].map(at);
let languages = [];
let settings = {};
let running = null; // the request that has not been answered
let timer = 0;
let shown = ""; // the translation as it is shown

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

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  const answer = await reply.json().catch(() => ({ error: `The server answered with status ${reply.status}.` }));
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

// Languages.

const named = (code) => (languages.find((language) => language.code === code) || { name: code }).name;
const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* not allowed here */ } };
const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };

function fill(select, codes, chosen) {
  select.replaceChildren(...codes.map((code) => made("option", code === "auto" ? "Detect language" : named(code), { value: code })));
  select.value = codes.includes(chosen) ? chosen : codes[0];
}

function fillTargets(chosen) {
  const from = source.value === "auto" ? languages : languages.filter((language) => language.code === source.value);
  fill(target, [...new Set(from.flatMap((language) => language.targets))], chosen);
  at("swap").disabled = !languages.some((language) => language.code === target.value && language.targets.length);
  text.lang = source.value === "auto" ? "" : source.value;
}

function chooseLanguages(from, to) {
  fill(source, ["auto", ...languages.filter((language) => language.targets.length).map((language) => language.code)], from);
  fillTargets(to);
  remember("source", source.value);
  remember("target", target.value);
}

// Translating.

function changed() {
  clearTimeout(timer);
  if (running) running.abort();
  running = null;
  show(mirror, text.value, []);
  const count = [...text.value].length;
  at("count").textContent = settings.charLimit ? `${count} / ${settings.charLimit}` : `${count}`;
  at("clear").hidden = !text.value;
  output.classList.add("stale");
  if (text.value.trim()) timer = setTimeout(translate, PAUSE);
  else present({ translatedText: "" });
}

async function translate() {
  const request = new AbortController();
  if (running) running.abort();
  running = request;
  const asked = { q: text.value, source: source.value, target: target.value, alternatives: ALTERNATIVES, alignments: true };
  if (at("key").value) asked.api_key = at("key").value;
  at("status").textContent = "Translating…";
  try {
    const answer = await ask("translate", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked), signal: request.signal,
    });
    if (running === request) present(answer);
  } catch (error) {
    if (running === request && error.name !== "AbortError") fail(error.message);
  } finally {
    if (running === request) running = null;
  }
}

function present(answer) {
  fail("");
  shown = answer.translatedText;
  output.lang = target.value;
  output.classList.remove("stale");
  const links = answer.alignments || [];
  show(output, shown, links.map(([, , begin, end]) => [begin, end]), links.map(([begin, , from]) => [begin, from]));
  show(mirror, text.value, links.map(([begin, end]) => [begin, end]), links.map(([begin, , from]) => [begin, from]));
  at("copy").disabled = !shown;
  at("copy").textContent = "Copy";
  const found = answer.detectedLanguage;
  at("status").textContent = found ? `Detected ${named(found.language)} (${Math.round(found.confidence)}%)` : "";
  const others = answer.alternatives || [];
  at("alternatives").replaceChildren(...others.map((other) => made("li", other, { lang: target.value, dir: "auto" })));
  at("others").hidden = !others.length;
}

// Linked words. Places are counted in characters, of which JavaScript's strings may need two units each.

function show(pane, content, places, links = []) {
  const characters = [...content];
  const words = new Map(places.map((place, i) => [place[0], { end: place[1], links: [] }]));
  places.forEach((place, i) => words.get(place[0]).links.push(links[i].join(" ")));
  const parts = [];
  let done = 0;
  for (const begin of [...words.keys()].sort((a, b) => a - b)) {
    const { end, links: own } = words.get(begin);
    if (begin < done) continue;
    parts.push(characters.slice(done, begin).join(""));
    const word = made("span", characters.slice(begin, end).join(""));
    word.dataset.links = own.join(",");
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
  if (at("key").value) form.append("api_key", at("key").value);
  fail("");
  at("download").hidden = true;
  at("status").textContent = `Translating ${file.name}…`;
  try {
    const answer = await ask("translate_file", { method: "POST", body: form });
    // The address may name the server as it sees itself; the path is what counts.
    const name = new URL(answer.translatedFileUrl).pathname.split("/").pop();
    const link = made("a", `Download the translation of ${file.name}`, { href: `download_file/${name}`, download: file.name });
    at("download").replaceChildren(link);
    at("download").hidden = false;
    at("status").textContent = "The file is translated.";
    link.focus();
  } catch (error) {
    fail(error.message);
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
at("key").addEventListener("change", changed);
at("key-form").addEventListener("submit", (event) => { event.preventDefault(); changed(); });
at("clear").addEventListener("click", () => { text.value = ""; changed(); text.focus(); });
at("swap").addEventListener("click", () => {
  const back = languages.find((language) => language.code === target.value).targets;
  const to = back.includes(source.value) ? source.value : back[0];
  if (shown) text.value = shown;
  chooseLanguages(target.value, to);
  changed();
});
at("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(shown);
  } catch { // only pages from this machine or over HTTPS may use the clipboard
    getSelection().selectAllChildren(output);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
  at("copy").textContent = "Copied";
});

(async () => {
  try {
    [languages, settings] = await Promise.all([ask("languages"), ask("frontend/settings")]);
  } catch (error) {
    fail(error.message);
    return;
  }
  at("key-form").hidden = !settings.keyRequired;
  at("file").accept = settings.supportedFilesFormat.join(",");
  chooseLanguages(remembered("source") || "auto", remembered("target") || settings.language.target.code);
  changed();
})();
