// The state of the page in the URL fragment, which is never sent to a server.

/** @typedef {Record<string, string>} Fields values of the form by field name */
/** @typedef {import("../../views/static/viewer.js").State} State */
/** @typedef {{fields: Fields, shown: Partial<State>[], best: number[]}} Address
 *  the form, and for each pane the state of its viewer and the index of the selected result */

const LAYER = /^(mean|\d+)$/;

/** Parse a URL fragment; invalid parts are ignored. @param {string} hash @returns {Address} */
export function parse(hash) {
  const fields = Object.fromEntries(new URLSearchParams(hash.slice(1)));
  const shown = [0, 1].map((pane) => {
    const number = (/** @type {string} */ text) => (text === "mean" ? text : Number(text));
    /** @type {Partial<State>} */
    const state = {};
    for (const name of /** @type {const} */ (["layer", "head"])) {
      const value = take(fields, `${name}${pane}`);
      if (LAYER.test(value)) state[name] = /** @type {number | "mean"} */ (number(value));
    }
    const view = take(fields, `view${pane}`);
    if (view) state.view = /** @type {State["view"]} */ (view);
    const [, side, index] = /^(row|column)(\d+)$/.exec(take(fields, `pinned${pane}`)) ?? [];
    if (side) state.pinned = { side: /** @type {"row" | "column"} */ (side), index: Number(index) };
    return state;
  });
  const best = [0, 1].map((pane) => Number(take(fields, `best${pane}`)) || 0);
  return { fields, shown, best };
}

/** Format the state as a URL fragment. @param {Address} address @returns {string} */
export function format({ fields, shown, best }) {
  const parameters = new URLSearchParams(fields);
  shown.forEach((state, pane) => {
    if (state.view) parameters.set(`view${pane}`, state.view);
    if (state.layer !== undefined && state.layer !== "mean") parameters.set(`layer${pane}`, String(state.layer));
    if (state.head !== undefined && state.head !== "mean") parameters.set(`head${pane}`, String(state.head));
    if (state.pinned) parameters.set(`pinned${pane}`, `${state.pinned.side}${state.pinned.index}`);
    if (best[pane]) parameters.set(`best${pane}`, String(best[pane]));
  });
  return `#${parameters}`;
}

/** Remove and return a field. @param {Fields} fields @param {string} name */
function take(fields, name) {
  const { [name]: value = "" } = fields;
  delete fields[name];
  return value;
}
