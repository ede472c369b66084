// What is shown, kept in the part of the address behind #, which is never sent to a server.

/** @typedef {Record<string, string>} Fields what is typed and chosen, by the names of the fields */
/** @typedef {import("../../views/static/viewer.js").State} State */
/** @typedef {{fields: Fields, shown: Partial<State>[], best: number[]}} Address
 *  fields, and for each pane what its viewer shows and which answer is looked at */

const LAYER = /^(mean|\d+)$/;

/** What an address restores; what means nothing in it is left out. @param {string} hash @returns {Address} */
export function read(hash) {
  const fields = Object.fromEntries(new URLSearchParams(hash.slice(1)));
  const shown = [0, 1].map((pane) => {
    const number = (/** @type {string} */ text) => (text === "mean" ? text : Number(text));
    /** @type {Partial<State>} */
    const state = {};
    for (const name of /** @type {const} */ (["layer", "head"])) {
      const found = take(fields, `${name}${pane}`);
      if (LAYER.test(found)) state[name] = /** @type {number | "mean"} */ (number(found));
    }
    const view = take(fields, `view${pane}`);
    if (view) state.view = /** @type {State["view"]} */ (view);
    const [, side, place] = /^(row|column)(\d+)$/.exec(take(fields, `pinned${pane}`)) ?? [];
    if (side) state.pinned = { side: /** @type {"row" | "column"} */ (side), place: Number(place) };
    return state;
  });
  const best = [0, 1].map((pane) => Number(take(fields, `best${pane}`)) || 0);
  return { fields, shown, best };
}

/** The address that restores all this. @param {Address} address @returns {string} */
export function written({ fields, shown, best }) {
  const found = new URLSearchParams(fields);
  shown.forEach((state, pane) => {
    if (state.view) found.set(`view${pane}`, state.view);
    if (state.layer !== undefined && state.layer !== "mean") found.set(`layer${pane}`, String(state.layer));
    if (state.head !== undefined && state.head !== "mean") found.set(`head${pane}`, String(state.head));
    if (state.pinned) found.set(`pinned${pane}`, `${state.pinned.side}${state.pinned.place}`);
    if (best[pane]) found.set(`best${pane}`, String(best[pane]));
  });
  return `#${found}`;
}

/** Take a field out. @param {Fields} fields @param {string} name */
function take(fields, name) {
  const { [name]: found = "" } = fields;
  delete fields[name];
  return found;
}
