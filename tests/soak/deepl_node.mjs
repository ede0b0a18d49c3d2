// Calls every method of deepl-node that `vtrans serve` serves. clients.py runs it.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const deepl = createRequire(`${process.cwd()}/`)("deepl-node");
const serverUrl = process.argv[2];
const client = new deepl.DeepLClient("key", { serverUrl });
const terms = new deepl.GlossaryEntries({ entries: { dog: "Köter" } });

const text = await client.translateText("The dog runs.", "en", "de");
assert.ok(text.text && text.billedCharacters === 13, JSON.stringify(text));
const both = await client.translateText(["A cat.", "The <x>dog</x> runs."], null, "de", {
  tagHandling: "xml", ignoreTags: ["x"], splitSentences: "nonewlines", preserveFormatting: true,
  formality: "prefer_more", context: "An app.",
});
assert.ok(both[1].text.includes("<x>dog</x>"), both[1].text);

assert.ok((await client.getUsage()).character.count > 0);
assert.deepEqual((await client.getSourceLanguages()).map((one) => one.code), ["en"]);
const targets = await client.getTargetLanguages();
assert.equal(targets[0].code, "de");
const [pair] = await client.getGlossaryLanguagePairs();
assert.deepEqual([pair.sourceLang, pair.targetLang], ["en", "de"]);

const made = await client.createGlossary("animals", "en", "de", terms);
assert.equal(made.entryCount, 1);
const table = await client.createGlossaryWithCsv("table", "en", "de", Buffer.from('"cat","Kater"\n'));
assert.equal((await client.getGlossary(made.glossaryId)).name, "animals");
assert.equal((await client.listGlossaries()).length, 2);
assert.deepEqual((await client.getGlossaryEntries(table)).entries(), { cat: "Kater" });
const used = await client.translateText("The dog runs.", "en", "de", { glossary: made });
assert.ok(used.text.includes("Köter"), used.text);

fs.writeFileSync("a.txt", "The dog runs.");
fs.rmSync("b.txt", { force: true });
await client.translateDocument("a.txt", "b.txt", "en", "de", { glossary: made });
assert.ok(fs.readFileSync("b.txt", "utf8").includes("Köter"));
const handle = await client.uploadDocument(Buffer.from("A cat."), "en", "de", { filename: "c.html" });
assert.ok((await client.isDocumentTranslationComplete(handle)).status.ok());
assert.ok((await client.getDocumentStatus(handle)).done());
fs.rmSync("c.html", { force: true });
await client.downloadDocument(handle, "c.html");
assert.ok(fs.readFileSync("c.html", "utf8").length > 0);
await client.deleteGlossary(made);
await client.deleteGlossary(table.glossaryId);
await assert.rejects(client.getGlossary(made.glossaryId), deepl.GlossaryNotFoundError);

const dictionary = { sourceLangCode: "en", targetLangCode: "de", entries: terms };
const more = { ...dictionary, entries: new deepl.GlossaryEntries({ entries: { hen: "Huhn" } }) };
const several = await client.createMultilingualGlossary("several", [dictionary]);
const id = several.glossaryId;
assert.equal((await client.getMultilingualGlossary(id)).dictionaries[0].entryCount, 1);
await client.updateMultilingualGlossaryDictionary(id, more);
await client.updateMultilingualGlossaryDictionaryWithCsv(id, "en", "de", "pig,Schwein");
const entries = await client.getMultilingualGlossaryDictionaryEntries(id, "en", "de");
assert.deepEqual(entries.entries.entries(), { dog: "Köter", hen: "Huhn", pig: "Schwein" });
assert.equal((await client.updateMultilingualGlossaryName(id, "other")).name, "other");
assert.equal((await client.replaceMultilingualGlossaryDictionary(id, more)).entryCount, 1);
assert.equal((await client.replaceMultilingualGlossaryDictionaryWithCsv(id, "en", "de", "a,b\nc,d")).entryCount, 2);
const last = await client.createMultilingualGlossaryWithCsv("last", "en", "de", "a,b");
assert.equal((await client.listMultilingualGlossaries()).length, 2);
await client.deleteMultilingualGlossaryDictionary(id, "en", "de");
await client.deleteMultilingualGlossary(id);
await client.deleteMultilingualGlossary(last);

await assert.rejects(client.translateText("a", "en", "ko"), /target_lang/);
await assert.rejects(client.translateText("a", "ko", "de"), /source_lang/);
if (!targets[0].supportsFormality)
  await assert.rejects(client.translateText("a", "en", "de", { formality: "more" }), /formality/);
const stranger = new deepl.DeepLClient("wrong", { serverUrl });
await assert.rejects(stranger.getUsage(), deepl.AuthorizationError);
