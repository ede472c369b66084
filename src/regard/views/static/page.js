// A page of its own: shows the record that is written into it, and keeps in its address what is shown.

import { Viewer } from "./viewer.js";

const found = new URLSearchParams(location.hash.slice(1));
const number = (/** @type {string | null} */ text) => (text === null || text === "mean" ? "mean" : Number(text));

new Viewer(
  /** @type {HTMLElement} */ (document.getElementById("view")),
  JSON.parse(/** @type {HTMLElement} */ (document.getElementById("record")).textContent ?? ""),
  {
    view: /** @type {import("./viewer.js").View} */ (found.get("view") ?? "matrix"),
    layer: number(found.get("layer")),
    head: number(found.get("head")),
  },
  ({ view, layer, head }) => {
    if (location.protocol === "about:") return; // in a frame there is no address to keep
    history.replaceState(null, "", `#${new URLSearchParams({ view, layer: String(layer), head: String(head) })}`);
  },
);
