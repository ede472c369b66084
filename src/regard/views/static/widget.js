// The viewer as an anywidget, synchronized with Python.

import { Viewer } from "./viewer.js";

/** @typedef {{get: (name: string) => any, set: (name: string, value: unknown) => void, save_changes: () => void,
 *   on: (event: string, act: () => void) => void, off: (event: string, act: () => void) => void}} Model */

const CHOICES = ["view", "layer", "head"];

/** Render the record of a model into an element. @param {{model: Model, el: HTMLElement}} context */
function render({ model, el }) {
  const chosen = () => Object.fromEntries(CHOICES.map((name) => [name, model.get(name)]));
  /** @type {Viewer} */
  let viewer;
  let updating = false; // ignore events while the traits are set one by one
  const update = (/** @type {Record<string, any>} */ state) => {
    updating = true;
    for (const name of CHOICES) model.set(name, state[name]);
    updating = false;
    model.save_changes();
  };
  const show = () => {
    viewer?.destroy();
    viewer = new Viewer(el, model.get("record"), chosen(), update);
  };
  const follow = () => {
    if (updating) return;
    const differs = CHOICES.some((name) => model.get(name) !== /** @type {Record<string, any>} */ (viewer.state)[name]);
    if (differs) viewer.choose(chosen());
  };
  show();
  model.on("change:record", show);
  for (const name of CHOICES) model.on(`change:${name}`, follow);
  return () => {
    model.off("change:record", show);
    for (const name of CHOICES) model.off(`change:${name}`, follow);
    viewer.destroy();
  };
}

export default { render };
