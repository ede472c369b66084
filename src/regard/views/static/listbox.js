// Keys that move through the tokens of one side, as a listbox does.

/**
 * @typedef {object} Walk
 * @property {() => number} count how many tokens there are
 * @property {() => number} place the token that is active, or -1
 * @property {(place: number) => void} go make another one active
 * @property {() => void} leave make none active
 * @property {() => void} across go to the other side
 */

/**
 * Let the keys walk: up and down or left and right by one, Page by twenty, Home, End, Escape; Enter goes across.
 * @param {HTMLElement} element
 * @param {Walk} walk
 */
export function walkWithKeys(element, walk) {
  element.setAttribute("role", "listbox");
  element.tabIndex = 0;
  element.addEventListener("keydown", (event) => {
    const last = walk.count() - 1;
    const here = walk.place();
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, PageDown: 20, PageUp: -20 };
    if (event.key in steps) walk.go(Math.min(last, Math.max(0, here + steps[event.key])));
    else if (event.key === "Home") walk.go(0);
    else if (event.key === "End") walk.go(last);
    else if (event.key === "Escape") walk.leave();
    else if (event.key === "Enter") walk.across();
    else return;
    event.preventDefault();
  });
}

/**
 * A token as an option of a listbox. It is set as text, never as markup.
 * @param {string} id
 * @param {string} text
 * @param {number} place
 * @param {number} count
 * @returns {HTMLElement}
 */
export function option(id, text, place, count) {
  const element = document.createElement("span");
  element.id = id;
  element.className = "token";
  element.dir = "auto";
  element.setAttribute("role", "option");
  element.setAttribute("aria-posinset", String(place + 1));
  element.setAttribute("aria-setsize", String(count));
  element.setAttribute("aria-selected", "false");
  element.dataset.place = String(place);
  element.textContent = text || "\u00a0";
  return element;
}
