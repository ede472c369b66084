// The viewer: tabs for the views of an attention map, with a choice of layer and head.

import { choice, element, tabs, themeButton } from "./controls.js";
import { HeadsView } from "./heads.js";
import { formatWeight, sanitize } from "./labels.js";
import { LinesView } from "./lines.js";
import { MatrixView } from "./matrix.js";
import { Attention } from "./record.js";
import { ceiling } from "./shades.js";
import { TimeView } from "./time.js";
import { WordsView } from "./words.js";

/**
 * @typedef {import("./record.js").Choice} Choice
 * @typedef {"row" | "column"} Side
 * @typedef {{side: Side, index: number}} Token
 * @typedef {"matrix" | "lines" | "heads" | "words" | "time"} View
 * @typedef {{view: View, layer: Choice, head: Choice, pinned: Token | null}} State
 */

const VIEWS = { matrix: MatrixView, lines: LinesView, heads: HeadsView, words: WordsView, time: TimeView };
const TITLES = { matrix: "Matrix", lines: "Lines", heads: "Heads", words: "Words", time: "Time" };
const TOOLTIPS = {
  matrix: "Heat map of all weights",
  lines: "Lines between tokens, as strong as their weights",
  heads: "Small maps of all layers and heads",
  words: "Text shaded by weights",
  time: "Output token by token, with alternatives",
};
const HINTS = {
  matrix: "Hover over a cell to see its weight.",
  lines: "Hover over a token to show only its lines; click to pin it.",
  heads: "Click a map to enlarge it.",
  words: "Click a word to see what it attends to, or what attends to it.",
  time: "Press Play or move the slider to see the output token by token.",
};
const LISTED = 5; // number of tokens listed for a pinned token

let viewers = 0;

export class Viewer {
  /**
   * @param {HTMLElement} host the parent element
   * @param {import("./record.js").MapRecord} record
   * @param {Partial<State>} [state] the initial state
   * @param {(state: State) => void} [changed] called after every change
   */
  constructor(host, record, state = {}, changed = () => {}) {
    this.id = `regard-${viewers++}`;
    this.attention = new Attention(record);
    this.rows = record.rows.map(sanitize);
    this.columns = record.columns.map(sanitize);
    this.changed = changed;
    /** @type {State} */
    this.state = { view: "matrix", layer: "mean", head: "mean", pinned: null };
    this.waiting = false;
    /** @type {Map<View, {element: HTMLElement, draw: () => void}>} */
    this.views = new Map();
    this.root = element("div", "regard");
    this.names = Object.keys(TITLES).filter((view) => view !== "time" || this.attention.alternatives);
    this.tabs = tabs(this.id, this.names, TITLES, TOOLTIPS, (view) => this.choose({ view: /** @type {View} */ (view) }));
    this.layer = choice("Layer", this.attention.layers, (layer) => this.choose({ layer }));
    this.head = choice("Head", this.attention.heads, (head) => this.choose({ head }));
    this.status = element("p", "status");
    this.panel = element("div", "panel");
    this.scale = element("span", "scale");
    this.build();
    host.append(this.root);
    this.night = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.later();
    this.night.addEventListener("change", this.redraw);
    this.sizes = new ResizeObserver(this.redraw);
    this.sizes.observe(this.root);
    this.choose({ layer: "mean", head: "mean", ...state });
    this.say(HINTS[this.state.view]);
  }

  /** Remove the viewer and its listeners. */
  destroy() {
    this.night.removeEventListener("change", this.redraw);
    this.sizes.disconnect();
    this.root.remove();
  }

  /** Whether the page is dark. */
  get dark() {
    const { theme } = this.root.dataset;
    return theme ? theme === "dark" : this.night.matches;
  }

  /** The weights of the selected layer and head. */
  get sheet() {
    return this.attention.sheet(this.state.layer, this.state.head);
  }

  /** The weight of the darkest shade. */
  get most() {
    return ceiling(this.sheet.most);
  }

  /** Return a color of the style sheet. @param {string} name */
  color(name) {
    const [light, dark] = getComputedStyle(this.root).getPropertyValue(name).trim().split(" ");
    return this.dark ? dark : light;
  }

  /** Return the index of the pinned token on one side, or -1. @param {Side} side */
  pinnedOn(side) {
    return this.state.pinned?.side === side ? this.state.pinned.index : -1;
  }

  /** Return what a token attends to, or what attends to it, strongest first. @param {Token} token */
  seen(token) {
    return (token.side === "row" ? this.sheet : this.sheet.transposed()).seen(token.index);
  }

  /** Pin a token, or none. @param {Token | null} token */
  pin(token) {
    this.choose({ pinned: token });
    if (token) this.tell(token);
    else this.say(HINTS[this.state.view]);
  }

  /** Describe what a token attends to, or what attends to it. @param {Token} token */
  tell(token) {
    const [labels, others, arrow] =
      token.side === "row" ? [this.rows, this.columns, "\u2192"] : [this.columns, this.rows, "\u2190"];
    const weights = this.seen(token).slice(0, LISTED).map(({ index, weight }) => `${others[index]} ${formatWeight(weight)}`);
    this.say(`${labels[token.index]} ${arrow} ${weights.join(", ") || "nothing"}`);
  }

  /** Update the status line after the weights changed. */
  retell() {
    const { view, pinned } = this.state;
    if (pinned && view !== "matrix" && view !== "heads") this.tell(pinned); // these two views show no pinned token
    else this.say(HINTS[view]);
  }

  /** Set the status line. @param {string} text */
  say(text) {
    this.status.textContent = text;
  }

  /** Change the state; invalid values are ignored. @param {Partial<State>} change */
  choose(change) {
    const { layers, heads } = this.attention;
    const known = (/** @type {unknown} */ choice, /** @type {number} */ count) =>
      choice === "mean" || (Number.isInteger(choice) && Number(choice) >= 0 && Number(choice) < count);
    const { view, layer, head } = this.state;
    if (change.view && this.names.includes(change.view)) this.state.view = change.view;
    if (change.layer !== undefined && known(change.layer, layers)) this.state.layer = layers > 1 ? change.layer : 0;
    if (change.head !== undefined && known(change.head, heads)) this.state.head = heads > 1 ? change.head : 0;
    if (change.pinned !== undefined) this.state.pinned = change.pinned;
    if (this.state.view !== view) this.say(HINTS[this.state.view]);
    else if (this.state.layer !== layer || this.state.head !== head) this.retell();
    this.show();
    this.changed(this.state);
  }

  /** Redraw the current view in the next animation frame. */
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.views.get(this.state.view)?.draw();
    });
  }

  /** Update the page to the state. */
  show() {
    const { view, layer, head } = this.state;
    if (!this.views.has(view)) this.views.set(view, new VIEWS[view](this));
    const shown = /** @type {{element: HTMLElement}} */ (this.views.get(view)).element;
    if (this.panel.firstChild !== shown) this.panel.replaceChildren(shown);
    this.panel.setAttribute("aria-labelledby", `${this.id}-tab-${view}`);
    this.tabs.show(view);
    this.layer.menu.value = String(layer);
    this.head.menu.value = String(head);
    this.later();
  }

  /** Show the range of the color scale. @param {number} most */
  showScale(most) {
    const { kept } = this.attention;
    this.scale.textContent = `0 to ${most}` + (kept ? `; top ${kept} weights per row` : "");
  }

  /** Build the elements. */
  build() {
    const bar = element("div", "bar");
    const choices = element("div", "choices");
    choices.append(this.layer.label, this.head.label, themeButton(this.root, () => this.later()));
    bar.append(this.tabs.list, choices);
    this.panel.id = `${this.id}-panel`;
    this.panel.setAttribute("role", "tabpanel");
    this.status.setAttribute("role", "status");
    this.status.dir = "auto";
    const ramp = element("span", "ramp");
    ramp.setAttribute("aria-hidden", "true");
    const foot = element("div", "foot");
    foot.append(ramp, this.scale);
    if (this.attention.links.length) foot.append(element("span", "gold", "gold alignment"));
    const title = element("h2", "title", sanitize(this.attention.title) || "Attention");
    title.dir = "auto";
    this.root.append(title, bar, this.status, this.panel, foot);
  }
}
