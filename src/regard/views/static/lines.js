// The lines: two columns of tokens, joined by lines as strong as the weights; a token can be looked at alone.

import { option, walkWithKeys } from "./listbox.js";
import { setShade } from "./shades.js";

const PITCH = 24; // pixels from one token to the next
const TALLEST = 640; // pixels; where there are more tokens they scroll
const MOST_LINES = 1000; // the strongest of those in sight are drawn
const FAINTEST = 0.01; // of the strongest: what is fainter cannot be seen
const STRENGTHS = 16; // lines as strong are drawn in one go

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
    this.sides = { row: this.side("row", "Who looks"), column: this.side("column", "What is looked at") };
    this.stage.append(this.sides.row, this.canvas, this.sides.column);
    this.element.append(this.stage);
    this.element.addEventListener("scroll", () => viewer.later(), { passive: true });
  }

  /** One column of tokens. @param {Side} side @param {string} name */
  side(side, name) {
    const { viewer } = this;
    const box = document.createElement("div");
    box.className = `side ${side}`;
    box.setAttribute("aria-label", name);
    const placeOf = (/** @type {Event} */ event) => {
      const token = /** @type {HTMLElement} */ (event.target).closest(".token");
      return token instanceof HTMLElement ? Number(token.dataset.place) : -1;
    };
    box.addEventListener("pointerover", (event) => {
      const place = placeOf(event);
      this.hover(place < 0 ? null : { side, place });
    });
    box.addEventListener("pointerleave", () => this.hover(null));
    box.addEventListener("click", (event) => {
      const place = placeOf(event);
      viewer.pin(place < 0 || viewer.pinnedOn(side) === place ? null : { side, place });
    });
    walkWithKeys(box, {
      count: () => this.words(side).length,
      place: () => viewer.pinnedOn(side),
      go: (place) => {
        this.hovered = null;
        this.bringIntoSight(place);
        viewer.pin({ side, place });
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

  /** Look at a token alone for as long as the pointer is upon it. @param {import("./viewer.js").Token | null} token */
  hover(token) {
    this.hovered = token;
    if (token) this.viewer.tell(token);
    this.viewer.later();
  }

  /** Scroll until a token can be seen. @param {number} place */
  bringIntoSight(place) {
    const top = place * PITCH;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop || top + PITCH > scrollTop + clientHeight) this.element.scrollTop = top - clientHeight / 2;
  }

  /** Draw everything anew. */
  draw() {
    const alone = this.hovered ?? this.viewer.state.pinned;
    const height = Math.min(TALLEST, parseFloat(this.stage.style.height));
    this.element.style.height = `${height}px`;
    const first = Math.floor(this.element.scrollTop / PITCH);
    const last = Math.ceil((this.element.scrollTop + height) / PITCH);
    const shades = new Map(alone ? this.viewer.seen(alone).map(({ place, weight }) => [place, weight]) : []);
    for (const side of /** @type {Side[]} */ (["row", "column"])) {
      this.drawTokens(side, first, last, alone, alone && alone.side !== side ? shades : null);
    }
    this.drawLines(alone, first, last, height);
    this.viewer.showScale(this.viewer.most);
  }

  /**
   * Set the tokens that are in sight.
   * @param {Side} side
   * @param {number} first
   * @param {number} last
   * @param {import("./viewer.js").Token | null} alone
   * @param {Map<number, number> | null} shades the weight of every token that has any
   */
  drawTokens(side, first, last, alone, shades) {
    const { viewer } = this;
    const box = this.sides[side];
    const words = this.words(side);
    const there = new Map([...box.children].map((child) => [Number(/** @type {HTMLElement} */ (child).dataset.place), child]));
    for (const [place, child] of there) if (place < first || place >= last) child.remove();
    for (let place = Math.max(0, first); place < Math.min(last, words.length); place++) {
      let token = /** @type {HTMLElement | undefined} */ (there.get(place));
      if (!token) {
        token = option(`${viewer.id}-line-${side}-${place}`, words[place], place, words.length);
        token.style.top = `${place * PITCH}px`;
        box.append(token);
      }
      const chosen = alone?.side === side && alone.place === place;
      token.setAttribute("aria-selected", String(viewer.pinnedOn(side) === place));
      token.classList.toggle("alone", chosen);
      const weight = shades?.get(place);
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
    const y = (/** @type {number} */ place) => (place + 0.5) * PITCH - this.element.scrollTop;
    pen.strokeStyle = this.viewer.colour("--line");
    this.byStrength(alone, first, last).forEach((lines, step) => {
      pen.globalAlpha = step / STRENGTHS;
      pen.lineWidth = 0.8 + (2.4 * step) / STRENGTHS;
      stroke(pen, lines, width, y);
    });
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    pen.setLineDash([6, 6]);
    pen.strokeStyle = this.viewer.colour("--link");
    const links = this.viewer.attention.links.map(([column, row]) => ({ row, column }));
    stroke(pen, links.filter((link) => touches(link, alone, first, last)), width, y);
  }

  /**
   * Go through the lines of one token, or through all that end in sight and can be seen.
   * @param {import("./viewer.js").Token | null} alone
   * @param {number} first
   * @param {number} last
   * @param {(row: number, column: number, weight: number) => void} visit
   */
  each(alone, first, last, visit) {
    const { sheet, most } = this.viewer;
    for (const turned of [false, true]) {
      if (alone && turned === (alone.side === "row")) continue;
      const one = turned ? sheet.transposed() : sheet;
      const [begin, end] = alone ? [alone.place, alone.place + 1] : [Math.max(0, first), Math.min(last, one.rows)];
      for (let row = begin; row < end; row++) {
        for (let at = one.starts[row]; at < one.starts[row + 1]; at++) {
          const column = one.indices[at];
          if (one.values[at] < FAINTEST * most) continue;
          if (!turned) visit(row, column, one.values[at]);
          else if (alone || column < first || column >= last) visit(column, row, one.values[at]); // the others came first
        }
      }
    }
  }

  /**
   * The lines in groups of as strong ones, the faintest group first; where there are too many, the faint ones are
   * left out, and of the group where the limit lies only some are taken.
   * @param {import("./viewer.js").Token | null} alone
   * @param {number} first
   * @param {number} last
   * @returns {Line[][]}
   */
  byStrength(alone, first, last) {
    const { most } = this.viewer;
    const stepOf = (/** @type {number} */ weight) => Math.ceil(Math.min(1, weight / most) * STRENGTHS);
    const counts = new Array(STRENGTHS + 1).fill(0);
    this.each(alone, first, last, (_row, _column, weight) => counts[stepOf(weight)]++);
    let limit = STRENGTHS;
    let room = MOST_LINES;
    while (limit > 0 && counts[limit] <= room) room -= counts[limit--];
    const stride = Math.ceil(counts[limit] / Math.max(1, room));
    let turn = 0;
    /** @type {Line[][]} */
    const groups = counts.map(() => []);
    this.each(alone, first, last, (row, column, weight) => {
      const step = stepOf(weight);
      if (step > limit || (step === limit && turn++ % stride === 0)) groups[step].push({ row, column });
    });
    return groups;
  }
}

/**
 * Whether a line ends in sight, or at the token that is looked at alone.
 * @param {Line} line
 * @param {import("./viewer.js").Token | null} alone
 * @param {number} first
 * @param {number} last
 * @returns {boolean}
 */
function touches({ row, column }, alone, first, last) {
  if (alone) return (alone.side === "row" ? row : column) === alone.place;
  return (row >= first && row < last) || (column >= first && column < last);
}

/**
 * Draw lines from the left edge to the right.
 * @param {CanvasRenderingContext2D} pen
 * @param {Line[]} lines
 * @param {number} width
 * @param {(place: number) => number} y the height of a token
 */
function stroke(pen, lines, width, y) {
  pen.beginPath();
  for (const { row, column } of lines) {
    pen.moveTo(0, y(row));
    pen.lineTo(width, y(column));
  }
  pen.stroke();
}
