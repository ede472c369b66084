// Keyboard navigation through the tokens of one side, as in a listbox.

/**
 * @typedef {object} Walk
 * @property {() => number} count the number of tokens
 * @property {() => number} index the active token, or -1
 * @property {(index: number) => void} go activate a token
 * @property {() => void} leave deactivate the token
 * @property {() => void} across move to the other side
 */

/**
 * Handle keys: arrows move by one, Page Up and Down by twenty, Home, End; Escape deactivates, Enter changes sides.
 * @param {HTMLElement} element
 * @param {Walk} walk
 */
export function walkWithKeys(element, walk) {
  element.setAttribute("role", "listbox");
  element.tabIndex = 0;
  element.addEventListener("keydown", (event) => {
    const last = walk.count() - 1;
    const here = walk.index();
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
 * Create a listbox option for a token. It is set as text, never as markup.
 * @param {string} id
 * @param {string} text
 * @param {number} index
 * @param {number} count
 * @returns {HTMLElement}
 */
export function option(id, text, index, count) {
  const element = document.createElement("span");
  element.id = id;
  element.className = "token";
  element.dir = "auto";
  element.setAttribute("role", "option");
  element.setAttribute("aria-posinset", String(index + 1));
  element.setAttribute("aria-setsize", String(count));
  element.setAttribute("aria-selected", "false");
  element.dataset.index = String(index);
  element.textContent = text || "\u00a0";
  return element;
}
