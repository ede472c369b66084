// Render a part of a sheet to pixels; where several cells share a pixel, the strongest is shown.

import { DEEPEST, pixelTable } from "./shades.js";

/**
 * @typedef {object} Part a part of a sheet and its size in pixels
 * @property {number} left    column at the left edge, may be fractional
 * @property {number} top     row at the upper edge
 * @property {number} across  pixels from one column to the next
 * @property {number} down    pixels from one row to the next
 * @property {number} width   pixels
 * @property {number} height
 */

/** @type {Map<boolean, Uint32Array>} */
const TABLES = new Map();

/**
 * Render a part of a sheet.
 * @param {import("./record.js").Sheet} sheet
 * @param {Part} part
 * @param {number} most weight of the darkest shade
 * @param {boolean} dark
 * @returns {ImageData}
 */
export function shadeBoard(sheet, part, most, dark) {
  const shades = new Uint16Array(part.width * part.height);
  const last = Math.min(sheet.rows, Math.ceil(part.top + part.height / part.down));
  for (let row = Math.max(0, Math.floor(part.top)); row < last; row++) shadeRow(sheet, row, part, most, shades);
  const table = TABLES.get(dark) ?? pixelTable(dark);
  TABLES.set(dark, table);
  const image = new ImageData(part.width, part.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < shades.length; at++) pixels[at] = table[shades[at]];
  return image;
}

/**
 * Apply the weights of a row to the shades.
 * @param {import("./record.js").Sheet} sheet
 * @param {number} row
 * @param {Part} part
 * @param {number} most
 * @param {Uint16Array} shades
 */
function shadeRow(sheet, row, part, most, shades) {
  const [upper, lower] = span(row - part.top, part.down, part.height);
  for (let at = sheet.first(row, Math.floor(part.left)); at < sheet.starts[row + 1]; at++) {
    const [left, right] = span(sheet.indices[at] - part.left, part.across, part.width);
    if (left >= part.width) break;
    const shade = Math.min(DEEPEST, Math.round((sheet.values[at] / most) * DEEPEST));
    for (let y = upper; y < lower; y++) {
      for (let pixel = y * part.width + left; pixel < y * part.width + right; pixel++) {
        if (shades[pixel] < shade) shades[pixel] = shade;
      }
    }
  }
}

/**
 * Return the range of pixels that a cell covers on one axis: at least one.
 * @param {number} index cells from the edge
 * @param {number} size pixels of a cell
 * @param {number} limit number of pixels
 * @returns {[number, number]}
 */
function span(index, size, limit) {
  const begin = Math.floor(index * size);
  const end = Math.max(begin + 1, Math.floor((index + 1) * size));
  return [Math.max(0, begin), Math.min(limit, end)];
}
