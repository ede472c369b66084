// The record of an attention map, and sheets of it: the weights of one layer and head, or of a mean over them.

/**
 * @typedef {number | "mean"} Choice one layer or head by its number, or the mean over all
 *
 * @typedef {object} TopWeights
 * @property {number[][][][]} values   by layer, head and row: the largest weights
 * @property {number[][][][]} indices  the columns of these; -1 where there is none
 * @property {number[][][]} received   by layer and head: what every column gets from all rows
 *
 * @typedef {object} MapRecord as AttentionMap.record() of the Python package gives it
 * @property {string} title
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {[number, number][] | null} links the true alignment, as (column, row)
 * @property {number[][][][] | TopWeights} weights
 * @property {[string, number][][]} [alternatives] for each row what might have been written: texts and probabilities
 *
 * @typedef {{place: number, weight: number}} Seen a row or column, and the weight that leads there
 */

/** The weights of one layer and head: for every row its columns in ascending order, and their weights. */
export class Sheet {
  /**
   * @param {number} columns
   * @param {Int32Array} starts where every row begins in the two that follow, and where the last one ends
   * @param {Int32Array} indices
   * @param {Float32Array} values
   * @param {Float32Array} received what every column gets from all rows
   */
  constructor(columns, starts, indices, values, received) {
    this.rows = starts.length - 1;
    this.columns = columns;
    this.starts = starts;
    this.indices = indices;
    this.values = values;
    this.received = received;
    this.most = values.reduce((most, value) => Math.max(most, value), 0);
    /** @type {Sheet | null} */
    this.turned = null;
  }

  /** Where the first entry of a row stands whose column is not below one. @param {number} row @param {number} column */
  first(row, column) {
    let low = this.starts[row];
    let high = this.starts[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.indices[middle] < column) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The weight of a row on a column. @param {number} row @param {number} column */
  at(row, column) {
    const place = this.first(row, column);
    return place < this.starts[row + 1] && this.indices[place] === column ? this.values[place] : 0;
  }

  /** What a row looks at, the strongest first. @param {number} row @returns {Seen[]} */
  seen(row) {
    const found = [];
    for (let at = this.starts[row]; at < this.starts[row + 1]; at++) {
      found.push({ place: this.indices[at], weight: this.values[at] });
    }
    return found.sort((one, other) => other.weight - one.weight);
  }

  /** The same weights with columns for rows. @returns {Sheet} */
  transposed() {
    if (this.turned) return this.turned;
    const starts = new Int32Array(this.columns + 1);
    for (const column of this.indices) starts[column + 1]++;
    for (let column = 0; column < this.columns; column++) starts[column + 1] += starts[column];
    const next = starts.slice();
    const indices = new Int32Array(this.indices.length);
    const values = new Float32Array(this.values.length);
    for (let row = 0; row < this.rows; row++) {
      for (let at = this.starts[row]; at < this.starts[row + 1]; at++) {
        const place = next[this.indices[at]]++;
        indices[place] = row;
        values[place] = this.values[at];
      }
    }
    this.turned = new Sheet(this.rows, starts, indices, values, new Float32Array(this.rows));
    return this.turned;
  }
}

/** An attention map, read from its record. */
export class Attention {
  /** @param {MapRecord} record */
  constructor(record) {
    const { weights } = record;
    this.title = record.title;
    this.rows = record.rows;
    this.columns = record.columns;
    this.links = record.links ?? [];
    this.alternatives = record.alternatives ?? null;
    /** @type {TopWeights | null} */
    this.top = Array.isArray(weights) ? null : weights;
    /** @type {number[][][][]} */
    this.values = Array.isArray(weights) ? weights : weights.values;
    this.layers = this.values.length;
    this.heads = this.values[0].length;
    /** @type {Map<string, Sheet>} */
    this.sheets = new Map();
  }

  /** How many weights of each row there are, or null where all are. */
  get kept() {
    return this.top ? this.values[0][0][0].length : null;
  }

  /** The weights of one layer and head, or the mean over all. @param {Choice} layer @param {Choice} head @returns {Sheet} */
  sheet(layer, head) {
    const name = `${layer} ${head}`;
    const known = this.sheets.get(name);
    if (known) return known;
    const chosen = [];
    for (const one of layer === "mean" ? this.values.keys() : [layer]) {
      for (const other of head === "mean" ? this.values[0].keys() : [head]) chosen.push([one, other]);
    }
    const made = this.mean(chosen);
    this.sheets.set(name, made);
    return made;
  }

  /** The mean over some layers and heads. @param {number[][]} chosen pairs of both @returns {Sheet} */
  mean(chosen) {
    const starts = new Int32Array(this.rows.length + 1);
    /** @type {number[]} */
    const indices = [];
    /** @type {number[]} */
    const values = [];
    const sum = new Float64Array(this.columns.length);
    const received = new Float64Array(this.columns.length);
    for (let row = 0; row < this.rows.length; row++) {
      for (const column of this.gather(chosen, row, sum)) {
        const weight = sum[column] / chosen.length;
        indices.push(column);
        values.push(weight);
        if (!this.top) received[column] += weight;
        sum[column] = 0;
      }
      starts[row + 1] = indices.length;
    }
    for (const [layer, head] of this.top ? chosen : []) {
      this.top?.received[layer][head].forEach((weight, column) => (received[column] += weight / chosen.length));
    }
    const { length } = this.columns;
    return new Sheet(length, starts, Int32Array.from(indices), Float32Array.from(values), Float32Array.from(received));
  }

  /**
   * Add up a row over layers and heads; returns the columns that have any weight, in order.
   * @param {number[][]} chosen
   * @param {number} row
   * @param {Float64Array} sum by column; zeros, and the caller makes it so again
   * @returns {number[]}
   */
  gather(chosen, row, sum) {
    /** @type {number[]} */
    const touched = [];
    for (const [layer, head] of chosen) {
      const line = this.values[layer][head][row];
      const places = this.top?.indices[layer][head][row];
      for (let at = 0; at < line.length; at++) {
        if (line[at] === 0) continue;
        const column = places ? places[at] : at;
        if (sum[column] === 0) touched.push(column);
        sum[column] += line[at];
      }
    }
    return touched.sort((one, other) => one - other);
  }
}
