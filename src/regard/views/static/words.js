// The words view: the text of both sides, shaded by the weights of the pinned token.

import { option, walkWithKeys } from "./listbox.js";
import { ceiling, setShade } from "./shades.js";

const CHUNK = 250; // tokens per block of a long text; only visible blocks are laid out
const LONG = 1000;

/** @typedef {import("./viewer.js").Side} Side */

export class WordsView {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    this.element = document.createElement("div");
    this.element.className = "words";
    this.rows = this.side("row", viewer.rows, "Queries");
    this.columns = this.side("column", viewer.columns, "Keys");
    /** @type {HTMLElement[]} */
    this.shaded = [];
  }

  /**
   * Create the text of one side.
   * @param {Side} side
   * @param {string[]} words
   * @param {string} name
   */
  side(side, words, name) {
    const heading = document.createElement("h3");
    heading.textContent = name;
    const box = document.createElement("div");
    box.className = "text";
    box.setAttribute("aria-label", name);
    const tokens = words.map((word, index) => option(`${this.viewer.id}-word-${side}-${index}`, word, index, words.length));
    for (let start = 0; start < tokens.length; start += words.length > LONG ? CHUNK : LONG) {
      const chunk = document.createElement("div");
      chunk.className = words.length > LONG ? "chunk" : "";
      chunk.setAttribute("role", "presentation");
      const end = start + (words.length > LONG ? CHUNK : LONG);
      chunk.append(...tokens.slice(start, end).flatMap((token) => [token, " "]));
      box.append(chunk);
    }
    this.element.append(heading, box);
    this.listen(side, box, tokens);
    return { box, tokens };
  }

  /**
   * Pin a token by click or keys.
   * @param {Side} side
   * @param {HTMLElement} box
   * @param {HTMLElement[]} tokens
   */
  listen(side, box, tokens) {
    const { viewer } = this;
    box.addEventListener("click", (event) => {
      const token = /** @type {HTMLElement} */ (event.target).closest(".token");
      if (!(token instanceof HTMLElement)) return;
      const index = Number(token.dataset.index);
      viewer.pin(viewer.pinnedOn(side) === index ? null : { side, index });
    });
    walkWithKeys(box, {
      count: () => tokens.length,
      index: () => viewer.pinnedOn(side),
      go: (index) => {
        viewer.pin({ side, index });
        tokens[index].scrollIntoView({ block: "nearest" });
      },
      leave: () => viewer.pin(null),
      across: () => (side === "row" ? this.columns : this.rows).box.focus(),
    });
  }

  /** Update the shades. */
  draw() {
    const { pinned } = this.viewer.state;
    for (const token of this.shaded) {
      setShade(token, null, false);
      token.setAttribute("aria-selected", "false");
      token.title = "";
    }
    this.shaded = [];
    for (const [side, { box, tokens }] of /** @type {const} */ ([["row", this.rows], ["column", this.columns]])) {
      const chosen = pinned?.side === side ? tokens[pinned.index] : null;
      if (chosen) {
        box.setAttribute("aria-activedescendant", chosen.id);
        chosen.setAttribute("aria-selected", "true");
        this.shaded.push(chosen);
      } else box.removeAttribute("aria-activedescendant");
    }
    if (!pinned) return this.shadeReceived();
    const other = pinned.side === "row" ? this.columns : this.rows;
    for (const { index, weight } of this.viewer.seen(pinned)) {
      this.shade(other.tokens[index], weight, this.viewer.most);
    }
    this.viewer.showScale(this.viewer.most);
  }

  /** Shade the keys by their mean weight over all rows. */
  shadeReceived() {
    const { received, rows } = this.viewer.sheet;
    const means = received.map((sum) => sum / rows);
    const most = ceiling(means.reduce((most, weight) => Math.max(most, weight), 0));
    means.forEach((weight, index) => this.shade(this.columns.tokens[index], weight, most));
    this.viewer.showScale(most);
  }

  /** @param {HTMLElement} token @param {number} weight @param {number} most */
  shade(token, weight, most) {
    if (weight === 0) return;
    setShade(token, weight / most, this.viewer.dark);
    token.title = String(Number(weight.toPrecision(3)));
    this.shaded.push(token);
  }
}
