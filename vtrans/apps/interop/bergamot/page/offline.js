// The service worker: keeps a copy of each file of the page for use when the server cannot be reached.
"use strict";

async function answer(request) {
  const cache = await caches.open(self.registration.scope);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(request, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(request);
    if (!kept) throw error;
    return kept;
  }
}

self.addEventListener("fetch", (event) => {
  if (event.request.method === "GET") event.respondWith(answer(event.request));
});
