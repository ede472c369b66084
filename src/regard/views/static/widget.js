// The viewer as an anywidget: what is chosen in the notebook's cell and in Python is the same.

import { Viewer } from "./viewer.js";

/** @typedef {{get: (name: string) => any, set: (name: string, value: unknown) => void, save_changes: () => void,
 *   on: (event: string, act: () => void) => void, off: (event: string, act: () => void) => void}} Model */

const CHOICES = ["view", "layer", "head"];

/** Show the record of a model in an element. @param {{model: Model, el: HTMLElement}} place */
function render({ model, el }) {
  const chosen = () => Object.fromEntries(CHOICES.map((name) => [name, model.get(name)]));
  /** @type {Viewer} */
  let viewer;
  let telling = false; // the model changes one choice after another, and is half told in between
  const tell = (/** @type {Record<string, any>} */ state) => {
    telling = true;
    for (const name of CHOICES) model.set(name, state[name]);
    telling = false;
    model.save_changes();
  };
  const show = () => {
    viewer?.destroy();
    viewer = new Viewer(el, model.get("record"), chosen(), tell);
  };
  const follow = () => {
    if (telling) return;
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
