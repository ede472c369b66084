// A self-contained page: shows its inline record and keeps the current view in the URL fragment. The initial view is
// in data attributes.

import { Viewer } from "./viewer.js";

const host = /** @type {HTMLElement} */ (document.getElementById("view"));
const parameters = new URLSearchParams(location.hash.slice(1));
const first = (/** @type {string} */ name) => parameters.get(name) ?? String(host.dataset[name]);
const number = (/** @type {string} */ text) => (text === "mean" ? text : Number(text));

new Viewer(
  host,
  JSON.parse(/** @type {HTMLElement} */ (document.getElementById("record")).textContent ?? ""),
  {
    view: /** @type {import("./viewer.js").View} */ (first("view")),
    layer: number(first("layer")),
    head: number(first("head")),
  },
  ({ view, layer, head }) => {
    if (location.protocol === "about:") return; // an iframe in a notebook has no URL
    history.replaceState(null, "", `#${new URLSearchParams({ view, layer: String(layer), head: String(head) })}`);
  },
);
