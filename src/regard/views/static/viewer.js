// The viewer: tabs for the views of one attention map, with the layer and head they show.

import { choice, element, tabs, themeButton } from "./controls.js";
import { HeadsView } from "./heads.js";
import { harmless, told } from "./labels.js";
import { LinesView } from "./lines.js";
import { MatrixView } from "./matrix.js";
import { Attention } from "./record.js";
import { ceiling } from "./shades.js";
import { TimeView } from "./time.js";
import { WordsView } from "./words.js";

/**
 * @typedef {import("./record.js").Choice} Choice
 * @typedef {"row" | "column"} Side
 * @typedef {{side: Side, place: number}} Token
 * @typedef {"matrix" | "lines" | "heads" | "words" | "time"} View
 * @typedef {{view: View, layer: Choice, head: Choice, pinned: Token | null}} State
 */

const VIEWS = { matrix: MatrixView, lines: LinesView, heads: HeadsView, words: WordsView, time: TimeView };
const TITLES = { matrix: "Matrix", lines: "Lines", heads: "Heads", words: "Words", time: "Time" };
const HINTS = {
  matrix: "Point at a cell to read its weight.",
  lines: "Point at a token to see its lines alone; click to keep it.",
  heads: "Choose a map to enlarge it.",
  words: "Choose a word to see where it looks, or who looks at it.",
  time: "Play, or go step by step, to see the target being written.",
};
const TOLD = 5; // how many tokens are named of those that one looks at

let viewers = 0;

export class Viewer {
  /**
   * @param {HTMLElement} host what the viewer is put into
   * @param {import("./record.js").MapRecord} record
   * @param {Partial<State>} [state] what to show first
   * @param {(state: State) => void} [changed] is told of every choice
   */
  constructor(host, record, state = {}, changed = () => {}) {
    this.id = `regard-${viewers++}`;
    this.attention = new Attention(record);
    this.rows = record.rows.map(harmless);
    this.columns = record.columns.map(harmless);
    this.changed = changed;
    /** @type {State} */
    this.state = { view: "matrix", layer: "mean", head: "mean", pinned: null };
    this.waiting = false;
    /** @type {Map<View, {element: HTMLElement, draw: () => void}>} */
    this.views = new Map();
    this.root = element("div", "regard");
    this.names = Object.keys(TITLES).filter((view) => view !== "time" || this.attention.alternatives);
    this.tabs = tabs(this.id, this.names, TITLES, (view) => this.choose({ view: /** @type {View} */ (view) }));
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

  /** Let go of what the browser holds for the viewer. */
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

  /** The weights of the chosen layer and head. */
  get sheet() {
    return this.attention.sheet(this.state.layer, this.state.head);
  }

  /** The weight that gets the deepest shade. */
  get most() {
    return ceiling(this.sheet.most);
  }

  /** A colour of the style sheet. @param {string} name */
  colour(name) {
    const [light, dark] = getComputedStyle(this.root).getPropertyValue(name).trim().split(" ");
    return this.dark ? dark : light;
  }

  /** The place of the chosen token on one side, or -1. @param {Side} side */
  pinnedOn(side) {
    return this.state.pinned?.side === side ? this.state.pinned.place : -1;
  }

  /** What a token looks at, or who looks at it, the strongest first. @param {Token} token */
  seen(token) {
    return (token.side === "row" ? this.sheet : this.sheet.transposed()).seen(token.place);
  }

  /** Choose a token, or none. @param {Token | null} token */
  pin(token) {
    this.choose({ pinned: token });
    if (token) this.tell(token);
    else this.say(HINTS[this.state.view]);
  }

  /** Say where a token looks, or who looks at it. @param {Token} token */
  tell(token) {
    const [own, others, sign] =
      token.side === "row" ? [this.rows, this.columns, "\u2192"] : [this.columns, this.rows, "\u2190"];
    const named = this.seen(token).slice(0, TOLD).map(({ place, weight }) => `${others[place]} ${told(weight)}`);
    this.say(`${own[token.place]} ${sign} ${named.join(", ") || "nothing"}`);
  }

  /** Say what is true of the weights that are shown now, where other weights were spoken of. */
  retell() {
    const { view, pinned } = this.state;
    if (pinned && view !== "matrix" && view !== "heads") this.tell(pinned); // those two show no token alone
    else this.say(HINTS[view]);
  }

  /** Say something below the views. @param {string} text */
  say(text) {
    this.status.textContent = text;
  }

  /** Change what is shown; what is not there is left as it was. @param {Partial<State>} change */
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

  /** Draw the view that is shown once before the next picture of the screen. */
  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.views.get(this.state.view)?.draw();
    });
  }

  /** Bring the page in line with the state. */
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

  /** Say which weight gets the deepest shade. @param {number} most */
  showScale(most) {
    const { kept } = this.attention;
    this.scale.textContent = `0 to ${most}` + (kept ? `; the largest ${kept} of a row are there` : "");
  }

  /** Put the parts together. */
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
    if (this.attention.links.length) foot.append(element("span", "gold", "true alignment"));
    const title = element("h2", "title", harmless(this.attention.title) || "Attention");
    title.dir = "auto";
    this.root.append(title, bar, this.status, this.panel, foot);
  }
}
