// The time view: the output token by token, with the attention and the alternatives of each step.

import { button, element } from "./controls.js";
import { formatWeight, sanitize } from "./labels.js";
import { setShade } from "./shades.js";

const PACE = 700; // milliseconds from one token to the next

export class TimeView {
  /** @param {import("./viewer.js").Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    /** @type {number | null} */
    this.playing = null;
    this.play = button("\u25b6", "Play", () => this.turn(this.playing === null));
    this.slider = document.createElement("input");
    this.slider.type = "range";
    this.slider.min = "0";
    this.slider.max = String(viewer.rows.length - 1);
    this.slider.setAttribute("aria-label", "Step");
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.written = element("p", "written");
    this.written.dir = "auto";
    this.source = element("p", "source");
    this.source.dir = "auto";
    this.tokens = viewer.columns.map((word) => token(word));
    this.source.append(...this.tokens.flatMap((word) => [word, " "]));
    this.considered = document.createElement("table");
    const bar = element("div", "zoom");
    bar.append(this.play, this.slider);
    this.element = element("div", "time");
    this.element.append(bar, element("h3", "", "Output"), this.written);
    this.element.append(element("h3", "", "Attention"), this.source);
    this.element.append(element("h3", "", "Alternatives"), this.considered);
  }

  /** The current step: the pinned row, or the first. */
  get step() {
    return Math.max(0, this.viewer.pinnedOn("row"));
  }

  /** Go to a step. @param {number} step */
  go(step) {
    this.viewer.pin({ side: "row", index: step });
  }

  /** Start (from the beginning if at the end) or stop playing. @param {boolean} on */
  turn(on) {
    if (this.playing !== null) clearInterval(this.playing);
    this.playing = null;
    if (on) {
      if (this.step === this.viewer.rows.length - 1) this.go(0);
      this.playing = window.setInterval(() => this.tick(), PACE);
    }
    this.play.textContent = on ? "\u275a\u275a" : "\u25b6";
    this.play.title = on ? "Pause" : "Play";
    this.play.setAttribute("aria-label", this.play.title);
  }

  /** Advance by one token; stop at the last one or when another view is shown. */
  tick() {
    const last = this.viewer.rows.length - 1;
    if (this.element.isConnected && this.step < last) this.go(this.step + 1);
    if (!this.element.isConnected || this.step === last) this.turn(false);
  }

  /** Return the text after a step; if rows are the tokens read, with "?" for the one not written yet. @param {number} step */
  textsAt(step) {
    const { rows, attention } = this.viewer;
    return attention.readsRows ? [...rows, "?"].slice(0, step + 2) : rows.slice(0, step + 1);
  }

  /** Redraw the view. */
  draw() {
    const { viewer, step } = this;
    this.slider.value = String(step);
    const texts = this.textsAt(step);
    this.slider.setAttribute("aria-valuetext", `${step + 1} of ${viewer.rows.length}: ${texts[texts.length - 1]}`);
    const words = texts.map((word) => token(word));
    words[words.length - 1].classList.add("alone");
    this.written.replaceChildren(...words.flatMap((word) => [word, " "]));
    for (const shaded of this.tokens) setShade(shaded, null, viewer.dark);
    for (const { index, weight } of viewer.seen({ side: "row", index: step })) {
      setShade(this.tokens[index], weight / viewer.most, viewer.dark);
    }
    this.considered.replaceChildren(...(viewer.attention.alternatives?.[step] ?? []).map(line));
    viewer.showScale(viewer.most);
  }
}

/** Create a token that cannot be selected. @param {string} word */
function token(word) {
  const made = element("span", "token", word || "\u00a0");
  made.dir = "auto";
  return made;
}

/** Create a table row of an alternative, with its probability as a number and a bar. @param {[string, number]} alternative */
function line([text, probability]) {
  const row = document.createElement("tr");
  const name = document.createElement("th");
  name.scope = "row";
  name.dir = "auto";
  name.textContent = sanitize(text);
  const number = row.insertCell();
  number.textContent = formatWeight(probability);
  const bar = element("span", "probability");
  bar.style.width = `${100 * probability}%`;
  row.prepend(name);
  row.insertCell().append(bar);
  return row;
}
