// A page of its own: shows the record that is written into it, and keeps in its address what is shown. What to show
// first is written into it too.

import { Viewer } from "./viewer.js";

const host = /** @type {HTMLElement} */ (document.getElementById("view"));
const found = new URLSearchParams(location.hash.slice(1));
const first = (/** @type {string} */ name) => found.get(name) ?? String(host.dataset[name]);
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
    if (location.protocol === "about:") return; // in a frame there is no address to keep
    history.replaceState(null, "", `#${new URLSearchParams({ view, layer: String(layer), head: String(head) })}`);
  },
);
