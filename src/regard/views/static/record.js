// The record of an attention map, and its sheets: the weights of one layer and head, or their mean.

/**
 * @typedef {number | "mean"} Choice index of a layer or head, or the mean over all
 *
 * @typedef {object} TopWeights
 * @property {number[][][][]} values   the largest weights by layer, head and row
 * @property {number[][][][]} indices  their columns; -1 where a row has fewer
 * @property {number[][][]} received   total weight of every column, by layer and head
 *
 * @typedef {object} MapRecord the output of AttentionMap.record() in Python
 * @property {string} title
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {[number, number][] | null} links the gold alignment, as (column, row)
 * @property {number[][][][] | TopWeights} weights
 * @property {[string, number][][]} [alternatives] texts and probabilities for each row, best first
 * @property {"row" | "next"} [alternatives_for] whether they are alternatives to the row or to what follows it
 *
 * @typedef {{index: number, weight: number}} Seen a row or column, and its weight
 */

/** The weights of one layer and head in compressed sparse row format, with columns in ascending order. */
export class Sheet {
  /**
   * @param {number} columns
   * @param {Int32Array} starts offsets of the rows in indices and values, and the end of the last row
   * @param {Int32Array} indices
   * @param {Float32Array} values
   * @param {Float32Array} received total weight of every column
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

  /** Return the position of the first entry of a row at or after a column. @param {number} row @param {number} column */
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

  /** Return the weight of a cell. @param {number} row @param {number} column */
  at(row, column) {
    const index = this.first(row, column);
    return index < this.starts[row + 1] && this.indices[index] === column ? this.values[index] : 0;
  }

  /** Return the columns of a row with their weights, strongest first. @param {number} row @returns {Seen[]} */
  seen(row) {
    const entries = [];
    for (let at = this.starts[row]; at < this.starts[row + 1]; at++) {
      entries.push({ index: this.indices[at], weight: this.values[at] });
    }
    return entries.sort((one, other) => other.weight - one.weight);
  }

  /** Return the transposed sheet. @returns {Sheet} */
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
        const index = next[this.indices[at]]++;
        indices[index] = row;
        values[index] = this.values[at];
      }
    }
    this.turned = new Sheet(this.rows, starts, indices, values, new Float32Array(this.rows));
    return this.turned;
  }
}

/** An attention map. */
export class Attention {
  /** @param {MapRecord} record */
  constructor(record) {
    const { weights } = record;
    this.title = record.title;
    this.rows = record.rows;
    this.columns = record.columns;
    this.links = record.links ?? [];
    this.alternatives = record.alternatives ?? null;
    this.readsRows = record.alternatives_for === "next";
    /** @type {TopWeights | null} */
    this.top = Array.isArray(weights) ? null : weights;
    /** @type {number[][][][]} */
    this.values = Array.isArray(weights) ? weights : weights.values;
    this.layers = this.values.length;
    this.heads = this.values[0].length;
    /** @type {Map<string, Sheet>} */
    this.sheets = new Map();
  }

  /** Number of weights kept per row, or null if all are. */
  get kept() {
    return this.top ? this.values[0][0][0].length : null;
  }

  /** Return the weights of one layer and head, or their mean. @param {Choice} layer @param {Choice} head @returns {Sheet} */
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

  /** Return the mean over some layers and heads. @param {number[][]} chosen pairs of layer and head @returns {Sheet} */
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
   * Sum a row over layers and heads; return the columns with a weight, in ascending order.
   * @param {number[][]} chosen
   * @param {number} row
   * @param {Float64Array} sum by column; zeros, to be reset by the caller
   * @returns {number[]}
   */
  gather(chosen, row, sum) {
    /** @type {number[]} */
    const touched = [];
    for (const [layer, head] of chosen) {
      const line = this.values[layer][head][row];
      const columns = this.top?.indices[layer][head][row];
      for (let at = 0; at < line.length; at++) {
        if (line[at] === 0) continue;
        const column = columns ? columns[at] : at;
        if (sum[column] === 0) touched.push(column);
        sum[column] += line[at];
      }
    }
    return touched.sort((one, other) => one - other);
  }
}
