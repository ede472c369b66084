// The heads view: a table of small maps of all layers and heads on one scale; each opens the matrix of its head.

import { shadeBoard } from "./board.js";
import { ceiling } from "./shades.js";

const LARGEST = 84; // longer side of a small map in pixels
const SMALLEST = 48; // minimum side; narrower tables scroll

export class HeadsView {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    this.element = document.createElement("div");
    this.element.className = "scroll";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "region");
    this.element.setAttribute("aria-label", "All layers and heads");
    /** @type {{layer: number, head: number, button: HTMLButtonElement, canvas: HTMLCanvasElement}[]} */
    this.maps = [];
    this.element.append(this.table());
  }

  /** Build the table with a row per layer and a column per head. */
  table() {
    const { layers, heads } = this.viewer.attention;
    const table = document.createElement("table");
    const top = table.createTHead().insertRow();
    top.append(document.createElement("td"));
    for (let head = 0; head < heads; head++) top.append(title("col", `head ${head}`));
    const body = table.createTBody();
    for (let layer = 0; layer < layers; layer++) {
      const line = body.insertRow();
      line.append(title("row", `layer ${layer}`));
      for (let head = 0; head < heads; head++) line.insertCell().append(this.small(layer, head));
    }
    return table;
  }

  /** Create a button with a small map. @param {number} layer @param {number} head */
  small(layer, head) {
    const button = document.createElement("button");
    const canvas = document.createElement("canvas");
    button.type = "button";
    button.className = "small";
    button.title = `Enlarge layer ${layer}, head ${head}`;
    button.setAttribute("aria-label", button.title);
    button.addEventListener("click", () => this.viewer.choose({ view: "matrix", layer, head }));
    button.append(canvas);
    this.maps.push({ layer, head, button, canvas });
    return button;
  }

  /** Return the available width of a map in pixels. */
  room() {
    const table = /** @type {HTMLTableElement} */ (this.element.firstChild);
    const gap = parseFloat(getComputedStyle(table).borderSpacing);
    const { heads } = this.viewer.attention;
    const name = table.tBodies[0].rows[0].cells[0].offsetWidth;
    const { button, canvas } = this.maps[0];
    const frame = button.offsetWidth - canvas.offsetWidth;
    return (this.element.clientWidth - name - gap * (heads + 2)) / heads - frame;
  }

  /** Redraw the view. */
  draw() {
    const { attention, dark, state } = this.viewer;
    const { length: rows } = attention.rows;
    const { length: columns } = attention.columns;
    const ratio = devicePixelRatio || 1;
    const cell = Math.min(LARGEST / Math.max(rows, columns), Math.max(SMALLEST, this.room()) / columns);
    const wide = Math.max(8, cell * columns);
    const high = Math.max(8, cell * rows);
    const width = Math.round(wide * ratio);
    const height = Math.round(high * ratio);
    const part = { left: 0, top: 0, across: width / columns, down: height / rows, width, height };
    const most = ceiling(Math.max(...this.maps.map(({ layer, head }) => attention.sheet(layer, head).most)));
    this.viewer.showScale(most);
    for (const { layer, head, button, canvas } of this.maps) {
      button.toggleAttribute("data-chosen", state.layer === layer && state.head === head);
      canvas.width = width;
      canvas.height = height;
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
      const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      pen.putImageData(shadeBoard(attention.sheet(layer, head), part, most, dark), 0, 0);
    }
  }
}

/** Create a header cell. @param {string} scope @param {string} text */
function title(scope, text) {
  const cell = document.createElement("th");
  cell.scope = scope;
  cell.textContent = text;
  return cell;
}
