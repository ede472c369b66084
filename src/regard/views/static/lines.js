// The lines view: two columns of tokens, connected by lines as strong as the weights.

import { option, walkWithKeys } from "./listbox.js";
import { setShade } from "./shades.js";

const PITCH = 24; // line height in pixels
const TALLEST = 640; // maximum height in pixels; more tokens scroll
const MOST_LINES = 1000; // only the strongest visible ones are drawn
const FAINTEST = 0.01; // relative to the maximum; fainter lines are not drawn
const STRENGTHS = 16; // levels of strength; the lines of one are drawn together

/**
 * @typedef {import("./viewer.js").Side} Side
 * @typedef {{row: number, column: number}} Line
 */

export class LinesView {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    /** @type {import("./viewer.js").Token | null} */
    this.hovered = null;
    this.element = document.createElement("div");
    this.element.className = "scroll lines";
    this.stage = document.createElement("div");
    this.stage.className = "stage";
    this.stage.style.height = `${PITCH * Math.max(viewer.rows.length, viewer.columns.length)}px`;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.sides = { row: this.side("row", "Queries"), column: this.side("column", "Keys") };
    this.stage.append(this.sides.row, this.canvas, this.sides.column);
    this.element.append(this.stage);
    this.element.addEventListener("scroll", () => viewer.later(), { passive: true });
  }

  /** Create one column of tokens. @param {Side} side @param {string} name */
  side(side, name) {
    const { viewer } = this;
    const box = document.createElement("div");
    box.className = `side ${side}`;
    box.setAttribute("aria-label", name);
    const indexAt = (/** @type {Event} */ event) => {
      const token = /** @type {HTMLElement} */ (event.target).closest(".token");
      return token instanceof HTMLElement ? Number(token.dataset.index) : -1;
    };
    box.addEventListener("pointerover", (event) => {
      const index = indexAt(event);
      this.hover(index < 0 ? null : { side, index });
    });
    box.addEventListener("pointerleave", () => this.hover(null));
    box.addEventListener("click", (event) => {
      const index = indexAt(event);
      viewer.pin(index < 0 || viewer.pinnedOn(side) === index ? null : { side, index });
    });
    walkWithKeys(box, {
      count: () => this.words(side).length,
      index: () => viewer.pinnedOn(side),
      go: (index) => {
        this.hovered = null;
        this.bringIntoSight(index);
        viewer.pin({ side, index });
      },
      leave: () => viewer.pin(null),
      across: () => this.sides[side === "row" ? "column" : "row"].focus(),
    });
    return box;
  }

  /** @param {Side} side */
  words(side) {
    return side === "row" ? this.viewer.rows : this.viewer.columns;
  }

  /** Show only the lines of the token under the pointer. @param {import("./viewer.js").Token | null} token */
  hover(token) {
    this.hovered = token;
    if (token) this.viewer.tell(token);
    this.viewer.later();
  }

  /** Scroll a token into view. @param {number} index */
  bringIntoSight(index) {
    const top = index * PITCH;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + PITCH > scrollTop + clientHeight) this.element.scrollTop = top - clientHeight / 2;
  }

  /** Redraw the view. */
  draw() {
    const alone = this.hovered ?? this.viewer.state.pinned;
    const height = Math.min(TALLEST, parseFloat(this.stage.style.height));
    this.element.style.height = `${height}px`;
    const first = Math.floor(this.element.scrollTop / PITCH);
    const last = Math.ceil((this.element.scrollTop + height) / PITCH);
    const shades = new Map(alone ? this.viewer.seen(alone).map(({ index, weight }) => [index, weight]) : []);
    for (const side of /** @type {Side[]} */ (["row", "column"])) {
      this.drawTokens(side, first, last, alone, alone && alone.side !== side ? shades : null);
    }
    this.drawLines(alone, first, last, height);
    this.viewer.showScale(this.viewer.most);
  }

  /**
   * Update the visible tokens.
   * @param {Side} side
   * @param {number} first
   * @param {number} last
   * @param {import("./viewer.js").Token | null} alone
   * @param {Map<number, number> | null} shades weights by token index
   */
  drawTokens(side, first, last, alone, shades) {
    const { viewer } = this;
    const box = this.sides[side];
    const words = this.words(side);
    const there = new Map([...box.children].map((child) => [Number(/** @type {HTMLElement} */ (child).dataset.index), child]));
    for (const [index, child] of there) if (index < first || index >= last) child.remove();
    for (let index = Math.max(0, first); index < Math.min(last, words.length); index++) {
      let token = /** @type {HTMLElement | undefined} */ (there.get(index));
      if (!token) {
        token = option(`${viewer.id}-line-${side}-${index}`, words[index], index, words.length);
        token.style.top = `${index * PITCH}px`;
        box.append(token);
      }
      const chosen = alone?.side === side && alone.index === index;
      token.setAttribute("aria-selected", String(viewer.pinnedOn(side) === index));
      token.classList.toggle("alone", chosen);
      const weight = shades?.get(index);
      setShade(token, weight === undefined ? null : weight / viewer.most, viewer.dark);
    }
    const active = viewer.pinnedOn(side);
    if (active < 0) box.removeAttribute("aria-activedescendant");
    else box.setAttribute("aria-activedescendant", `${viewer.id}-line-${side}-${active}`);
  }

  /**
   * @param {import("./viewer.js").Token | null} alone
   * @param {number} first
   * @param {number} last
   * @param {number} height
   */
  drawLines(alone, first, last, height) {
    const ratio = devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    pen.scale(ratio, ratio);
    const y = (/** @type {number} */ index) => (index + 0.5) * PITCH - this.element.scrollTop;
    pen.strokeStyle = this.viewer.color("--line");
    this.byStrength(alone, first, last).forEach((lines, step) => {
      pen.globalAlpha = step / STRENGTHS;
      pen.lineWidth = 0.8 + (2.4 * step) / STRENGTHS;
      stroke(pen, lines, width, y);
    });
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.setLineDash([6, 6]);
    pen.strokeStyle = this.viewer.color("--link");
    const links = this.viewer.attention.links.map(([column, row]) => ({ row, column }));
    stroke(pen, links.filter((link) => touches(link, alone, first, last)), width, y);
  }

  /**
   * Visit the lines of one token, or all visible lines.
   * @param {import("./viewer.js").Token | null} alone
   * @param {number} first
   * @param {number} last
   * @param {(row: number, column: number, weight: number) => void} visit
   */
  visitLines(alone, first, last, visit) {
    const { sheet, most } = this.viewer;
    for (const turned of [false, true]) {
      if (alone && turned === (alone.side === "row")) continue;
      const one = turned ? sheet.transposed() : sheet;
      const [begin, end] = alone ? [alone.index, alone.index + 1] : [Math.max(0, first), Math.min(last, one.rows)];
      for (let row = begin; row < end; row++) {
        for (let at = one.starts[row]; at < one.starts[row + 1]; at++) {
          const column = one.indices[at];
          if (one.values[at] < FAINTEST * most) continue;
          if (!turned) visit(row, column, one.values[at]);
          else if (alone || column < first || column >= last) visit(column, row, one.values[at]); // the others were visited before
        }
      }
    }
  }

  /**
   * Return the lines grouped by strength, faintest first. If there are too many, the faintest are dropped, and the
   * group at the limit is thinned.
   * @param {import("./viewer.js").Token | null} alone
   * @param {number} first
   * @param {number} last
   * @returns {Line[][]}
   */
  byStrength(alone, first, last) {
    const { most } = this.viewer;
    const stepOf = (/** @type {number} */ weight) => Math.ceil(Math.min(1, weight / most) * STRENGTHS);
    const counts = new Array(STRENGTHS + 1).fill(0);
    this.visitLines(alone, first, last, (_row, _column, weight) => counts[stepOf(weight)]++);
    let limit = STRENGTHS;
    let room = MOST_LINES;
    while (limit > 0 && counts[limit] <= room) room -= counts[limit--];
    const stride = Math.ceil(counts[limit] / Math.max(1, room));
    let turn = 0;
    /** @type {Line[][]} */
    const groups = counts.map(() => []);
    this.visitLines(alone, first, last, (row, column, weight) => {
      const step = stepOf(weight);
      if (step > limit || (step === limit && turn++ % stride === 0)) groups[step].push({ row, column });
    });
    return groups;
  }
}

/**
 * Return whether a line ends in the visible range, or at the isolated token.
 * @param {Line} line
 * @param {import("./viewer.js").Token | null} alone
 * @param {number} first
 * @param {number} last
 * @returns {boolean}
 */
function touches({ row, column }, alone, first, last) {
  if (alone) return (alone.side === "row" ? row : column) === alone.index;
  return (row >= first && row < last) || (column >= first && column < last);
}

/**
 * Draw lines from the left edge to the right.
 * @param {CanvasRenderingContext2D} pen
 * @param {Line[]} lines
 * @param {number} width
 * @param {(index: number) => number} y vertical center of a token
 */
function stroke(pen, lines, width, y) {
  pen.beginPath();
  for (const { row, column } of lines) {
    pen.moveTo(0, y(row));
    pen.lineTo(width, y(column));
  }
  pen.stroke();
}
