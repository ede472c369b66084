// The matrix view: queries on the left, keys above, a shaded cell for each pair.

import { shadeBoard } from "./board.js";
import { button, element } from "./controls.js";
import { formatWeight } from "./labels.js";

const LARGEST_CELL = 28; // pixels
const CLOSEST = 40; // pixels of a cell at maximum zoom
const GUTTER = 110; // maximum width of the labels
const GAP = 6;
const LETTERS = 12; // line height of the labels in pixels
const FONT = "12px system-ui, sans-serif";

/** @typedef {import("./viewer.js").Viewer} Viewer */

export class MatrixView {
  /** @param {Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    this.element = document.createElement("div");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "weight matrix");
    this.canvas.setAttribute(
      "aria-label",
      `${viewer.rows.length} rows and ${viewer.columns.length} columns. ` +
        "Use the arrow keys to move between cells, plus and minus to zoom, and 0 to fit.",
    );
    this.element.append(this.buttons(), this.canvas);
    /** @type {{row: number, column: number} | null} */
    this.cursor = null;
    this.zoom = 1; // 1 shows all cells
    this.left = 0; // column and row in the upper left corner
    this.top = 0;
    /** @type {unknown[]} */
    this.drawn = []; // inputs of the board, which is reused while only the pointer moves
    /** @type {ImageData | null} */
    this.board = null;
    this.gutter = this.measure();
    this.listen();
  }

  /** Create the zoom buttons. */
  buttons() {
    const bar = element("div", "zoom");
    bar.append(
      button("+", "Zoom in", () => this.enlarge(1.5)),
      button("\u2212", "Zoom out", () => this.enlarge(1 / 1.5)),
      button("Fit", "Show all cells", () => this.enlarge(0)),
    );
    return bar;
  }

  /** Measure the labels. */
  measure() {
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    pen.font = FONT;
    const widest = (/** @type {string[]} */ words) => {
      const longest = [...words].sort((one, other) => other.length - one.length).slice(0, 50);
      return Math.ceil(Math.min(GUTTER, Math.max(...longest.map((word) => pen.measureText(word).width)))) + GAP;
    };
    return { left: widest(this.viewer.rows), top: widest(this.viewer.columns) };
  }

  /** Return the size of the board, of a cell, and of a cell at zoom 1. */
  layout() {
    const wide = Math.max(80, this.element.clientWidth - this.gutter.left - 1);
    const high = Math.max(160, Math.min(720, 0.75 * innerHeight) - this.gutter.top);
    const { length: rows } = this.viewer.rows;
    const { length: columns } = this.viewer.columns;
    const whole = Math.min(LARGEST_CELL, wide / columns, high / rows);
    const cell = whole * this.zoom;
    return { cell, whole, width: Math.min(wide, cell * columns), height: Math.min(high, cell * rows) };
  }

  /** Redraw the view. */
  draw() {
    const { cell, width, height } = this.layout();
    this.left = Math.min(Math.max(0, this.left), this.viewer.columns.length - width / cell);
    this.top = Math.min(Math.max(0, this.top), this.viewer.rows.length - height / cell);
    const ratio = devicePixelRatio || 1;
    const whole = { width: this.gutter.left + width + 1, height: this.gutter.top + height + 1 };
    this.canvas.width = Math.round(whole.width * ratio);
    this.canvas.height = Math.round(whole.height * ratio);
    this.canvas.style.width = `${whole.width}px`;
    this.canvas.style.height = `${whole.height}px`;
    this.canvas.style.touchAction = this.zoom > 1 ? "none" : "auto";
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.drawCells(pen, ratio, cell, width, height);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawLinks(pen, cell, width, height);
    this.drawWords(pen, cell, width, height);
    this.drawCursor(pen, cell);
    this.viewer.showScale(this.viewer.most);
  }

  /**
   * Draw the shaded cells.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} ratio device pixels per CSS pixel
   * @param {number} cell
   * @param {number} width
   * @param {number} height
   */
  drawCells(pen, ratio, cell, width, height) {
    const part = {
      left: this.left,
      top: this.top,
      across: cell * ratio,
      down: cell * ratio,
      width: Math.max(1, Math.round(width * ratio)),
      height: Math.max(1, Math.round(height * ratio)),
    };
    const { sheet, most, dark } = this.viewer;
    const now = [sheet, dark, ...Object.values(part)];
    if (now.some((value, index) => value !== this.drawn[index])) this.board = shadeBoard(sheet, part, most, dark);
    this.drawn = now;
    pen.putImageData(/** @type {ImageData} */ (this.board), Math.round(this.gutter.left * ratio), Math.round(this.gutter.top * ratio));
  }

  /**
   * Draw a frame around every cell of the gold alignment.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} cell
   * @param {number} width
   * @param {number} height
   */
  drawLinks(pen, cell, width, height) {
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter.left, this.gutter.top, width, height);
    pen.clip();
    pen.strokeStyle = this.viewer.color("--link");
    pen.lineWidth = Math.min(2, Math.max(1, cell / 8));
    const inset = pen.lineWidth / 2;
    for (const [column, row] of this.viewer.attention.links) {
      const { x, y } = this.corner(row, column, cell);
      pen.strokeRect(x + inset, y + inset, Math.max(1, cell - 2 * inset), Math.max(1, cell - 2 * inset));
    }
    pen.restore();
  }

  /**
   * Draw the labels, skipping some if they would overlap.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} cell
   * @param {number} width
   * @param {number} height
   */
  drawWords(pen, cell, width, height) {
    pen.font = FONT;
    pen.textBaseline = "middle";
    const step = Math.ceil(LETTERS / cell);
    const strong = this.cursor;
    for (let row = Math.ceil(this.top / step) * step; row < this.top + height / cell; row += step) {
      const y = this.gutter.top + (row + 0.5 - this.top) * cell;
      if (row < this.viewer.rows.length) this.word(pen, this.viewer.rows[row], strong?.row === row, this.gutter.left, y, 0);
    }
    for (let column = Math.ceil(this.left / step) * step; column < this.left + width / cell; column += step) {
      const x = this.gutter.left + (column + 0.5 - this.left) * cell;
      if (column >= this.viewer.columns.length) break;
      this.word(pen, this.viewer.columns[column], strong?.column === column, x, this.gutter.top, -Math.PI / 2);
    }
  }

  /**
   * Draw one label: next to its row, or rotated above its column.
   * @param {CanvasRenderingContext2D} pen
   * @param {string} text
   * @param {boolean} strong
   * @param {number} x
   * @param {number} y
   * @param {number} turn
   */
  word(pen, text, strong, x, y, turn) {
    pen.save();
    pen.fillStyle = this.viewer.color(strong ? "--accent" : "--ink");
    pen.textAlign = turn ? "left" : "right";
    pen.translate(x, y);
    pen.rotate(turn);
    pen.fillText(shortened(pen, text, GUTTER), turn ? GAP : -GAP, 0);
    pen.restore();
  }

  /**
   * Draw a frame around the active cell.
   * @param {CanvasRenderingContext2D} pen
   * @param {number} cell
   */
  drawCursor(pen, cell) {
    if (!this.cursor) return;
    const { x, y } = this.corner(this.cursor.row, this.cursor.column, cell);
    pen.strokeStyle = this.viewer.color("--accent");
    pen.lineWidth = 2;
    if (x >= this.gutter.left - cell && y >= this.gutter.top - cell) {
      pen.strokeRect(x, y, Math.max(3, cell), Math.max(3, cell));
    }
  }

  /** Return the upper left corner of a cell on the canvas. @param {number} row @param {number} column @param {number} cell */
  corner(row, column, cell) {
    return { x: this.gutter.left + (column - this.left) * cell, y: this.gutter.top + (row - this.top) * cell };
  }

  /** Zoom by a factor around a point of the canvas or its center; 0 shows all cells.
   * @param {number} factor @param {number} [x] @param {number} [y] */
  enlarge(factor, x, y) {
    const before = this.layout();
    const across = x === undefined ? before.width / 2 : x - this.gutter.left;
    const down = y === undefined ? before.height / 2 : y - this.gutter.top;
    const column = this.left + across / before.cell;
    const row = this.top + down / before.cell;
    const closest = Math.max(1, CLOSEST / before.whole);
    this.zoom = Math.min(closest, Math.max(1, this.zoom * factor));
    const { cell } = this.layout();
    this.left = column - across / cell;
    this.top = row - down / cell;
    this.viewer.later();
  }

  /** Activate a cell, or none, and show its weight in the status line. @param {{row: number, column: number} | null} cell */
  point(cell) {
    this.cursor = cell;
    if (cell) {
      const { rows, columns, sheet } = this.viewer;
      const weight = formatWeight(sheet.at(cell.row, cell.column));
      this.viewer.say(`${rows[cell.row]} \u2192 ${columns[cell.column]}: ${weight}`);
    }
    this.viewer.later();
  }

  /** Return the cell under the pointer. @param {PointerEvent} event */
  under(event) {
    const { cell } = this.layout();
    const column = Math.floor(this.left + (event.offsetX - this.gutter.left) / cell);
    const row = Math.floor(this.top + (event.offsetY - this.gutter.top) / cell);
    const inside = event.offsetX >= this.gutter.left && event.offsetY >= this.gutter.top;
    return inside && row < this.viewer.rows.length && column < this.viewer.columns.length ? { row, column } : null;
  }

  /** Move the active cell and scroll it into view. @param {number} down @param {number} across */
  step(down, across) {
    const from = this.cursor ?? { row: down > 0 ? -1 : 0, column: across > 0 ? -1 : 0 };
    const row = Math.min(this.viewer.rows.length - 1, Math.max(0, from.row + down));
    const column = Math.min(this.viewer.columns.length - 1, Math.max(0, from.column + across));
    const { cell, width, height } = this.layout();
    this.left = Math.min(column, Math.max(this.left, column + 1 - width / cell));
    this.top = Math.min(row, Math.max(this.top, row + 1 - height / cell));
    this.point({ row, column });
  }

  /** Handle pointer, wheel and keys. */
  listen() {
    /** @type {{x: number, y: number, left: number, top: number} | null} */
    let grip = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      grip = { x: event.offsetX, y: event.offsetY, left: this.left, top: this.top };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointerup", () => (grip = null));
    this.canvas.addEventListener("pointercancel", () => (grip = null));
    this.canvas.addEventListener("pointermove", (event) => {
      if (!grip) return this.point(this.under(event));
      const { cell } = this.layout();
      this.left = grip.left - (event.offsetX - grip.x) / cell;
      this.top = grip.top - (event.offsetY - grip.y) / cell;
      this.viewer.later();
    });
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
        event.preventDefault();
        this.enlarge(Math.exp(-event.deltaY / 200), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    this.canvas.addEventListener("keydown", (event) => {
      /** @type {Record<string, [number, number]>} */
      const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
      if (event.key in steps) this.step(...steps[event.key]);
      else if (event.key === "+" || event.key === "=") this.enlarge(1.5);
      else if (event.key === "-") this.enlarge(1 / 1.5);
      else if (event.key === "0") this.enlarge(0);
      else if (event.key === "Escape") this.point(null);
      else return;
      event.preventDefault();
    });
  }
}

/**
 * Shorten a text to a maximum width, ending with … if it was cut.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {number} limit pixels
 * @returns {string}
 */
function shortened(pen, text, limit) {
  if (text.length < 100 && pen.measureText(text).width <= limit) return text;
  const signs = [...text.slice(0, 100)];
  while (signs.length && pen.measureText(signs.join("") + "\u2026").width > limit) signs.pop();
  return signs.join("") + "\u2026";
}
