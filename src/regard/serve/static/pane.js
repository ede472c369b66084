// A pane: what one model makes of a text, and where it looks.

import { element } from "../../views/static/controls.js";
import { harmless, told } from "../../views/static/labels.js";
import { Viewer } from "../../views/static/viewer.js";
import { look, stream } from "./api.js";

/**
 * @typedef {import("./api.js").About} About
 * @typedef {import("./api.js").Answer} Answer
 * @typedef {import("./api.js").Scored} Scored
 * @typedef {import("../../views/static/viewer.js").State} State
 * @typedef {{words: boolean, kind?: string}} Sight what to look at
 */

const NO_ATTENTION =
  "This model has no attention: all that it knows of the text when it writes went through one vector of fixed size.";
const BEST_FIRST = "Answers, the best first";
const OF_THE_REQUEST = ["kind", "model", "text", "source", "prompt"];

export class Pane {
  /**
   * @param {About} about
   * @param {{state: Partial<State>, best: number, theme: string | undefined}} restored
   * @param {(again?: boolean) => void} changed is told when something else is shown, and whether to look again for it
   */
  constructor(about, restored, changed) {
    this.about = about;
    this.changed = changed;
    /** @type {Partial<State>} */
    this.state = { ...restored.state };
    this.best = restored.best;
    this.theme = restored.theme;
    this.turns = 0; // looks that were begun; only the last is shown
    /** @type {Viewer | null} */
    this.viewer = null;
    /** @type {Record<string, any> | null} what was answered, as far as a look needs it */
    this.question = null;
    /** @type {Answer} */
    this.answer = {};
    /** @type {Scored[]} */
    this.alternatives = [];
    this.usual = true; // whether the best answer is the one that the model gives unless told otherwise
    this.element = element("section", about.attention.length ? "pane sees" : "pane");
    this.output = element("div", "output");
    this.output.dir = "auto";
    this.answers = element("div", "answers");
    this.note = element("p", "note");
    this.host = element("div", "host");
    const heading = element("h2", "", about.name);
    heading.id = `pane-${about.name}`;
    this.element.setAttribute("aria-labelledby", heading.id);
    const size = `${about.preset}, ${about.parameters.toLocaleString("en")} parameters`;
    this.element.append(heading, element("p", "about", size), this.output, this.answers, this.note, this.host);
  }

  /** The answer in words, for those who hear it. */
  get spoken() {
    const { name } = this.about;
    const marked = [...this.output.querySelectorAll(".tag.marked")].map((tag) => {
      return `${tag.children[0].textContent} ${tag.children[1].textContent}`;
    });
    return `${name}: ${this.answer.tags ? marked.join(", ") || "no tags" : this.output.textContent}`;
  }

  /** Let go of the viewer. */
  destroy() {
    this.viewer?.destroy();
    this.viewer = null;
  }

  /**
   * Ask the model, and show its answer as it grows.
   * @param {Record<string, any>} question
   * @param {Sight} sight
   * @param {AbortSignal} signal
   */
  async run(question, sight, signal) {
    this.output.setAttribute("aria-busy", "true");
    try {
      const answer = await this.ask(question, signal);
      this.show(question, answer);
    } finally {
      this.output.removeAttribute("aria-busy");
    }
    await this.look(sight, signal);
  }

  /** @param {Record<string, any>} question @param {AbortSignal} signal @returns {Promise<Answer>} */
  ask(question, signal) {
    let written = "";
    this.showText("");
    return stream(question, signal, ({ part, beam }) => {
      written = beam ? beam[0].text : written + part;
      this.showText(written, beam ? undefined : question.text);
      if (beam) this.answers.replaceChildren(bestList(beam.map(scoredLine), "Its beam so far"));
    });
  }

  /**
   * Show the answer.
   * @param {Record<string, any>} question
   * @param {Answer} answer
   */
  show(question, answer) {
    const { text, second, context } = question;
    this.question = { text, ...(second !== undefined && { second }), ...(context !== undefined && { context }) };
    this.answer = answer;
    const { beam } = this.about.defaults;
    this.usual = beam === (question.beam ?? Math.max(beam ?? 1, question.nbest));
    this.alternatives = answer.alternatives ?? [];
    if (this.best >= this.alternatives.length) this.best = 0;
    if (answer.ranked) this.showLabels(answer);
    else if (answer.tags) this.showTags(answer);
    else if (answer.alternatives) this.showAlternatives();
    else this.showValues(answer);
  }

  /** A text as it is so far, behind its prompt if it has one. @param {string} text @param {string} [prompt] */
  showText(text, prompt) {
    const before = prompt === undefined ? [] : [element("span", "prompt", visible(prompt))];
    this.output.replaceChildren(...before, element("span", "written", visible(text)));
  }

  /** The answers, of which one is looked at. */
  showAlternatives() {
    const { alternatives, answer } = this;
    this.showText(alternatives[this.best].text, answer.prompt);
    if (alternatives.length < 2) return this.answers.replaceChildren();
    const lines = alternatives.map((scored, place) => {
      const line = element("label", "");
      const radio = document.createElement("input");
      radio.type = "radio";
      radio.name = `best-${this.about.name}`;
      radio.checked = place === this.best;
      radio.addEventListener("change", () => {
        this.best = place;
        this.showText(scored.text, answer.prompt);
        this.changed(true);
      });
      line.append(radio, ...scoredLine(scored));
      return [line];
    });
    const group = document.createElement("fieldset");
    const legend = answer.prompt === undefined ? `${BEST_FIRST} by log p and length` : BEST_FIRST;
    group.append(element("legend", "", legend), bestList(lines));
    this.answers.replaceChildren(group);
  }

  /** @param {Answer} answer */
  showLabels({ labels, ranked }) {
    this.output.textContent = labels?.map(visible).join(", ") || "no label";
    const lines = (ranked ?? []).map(({ label, probability }) => labelLine(label, probability));
    this.answers.replaceChildren(bestList(lines, "Probabilities"));
  }

  /** @param {Answer} answer */
  showTags({ words, tags, probabilities }) {
    const list = element("ul", "tags");
    list.append(
      ...(words ?? []).map((word, place) => {
        const tag = tags?.[place] ?? "";
        const item = element("li", tag === "O" ? "tag" : "tag marked");
        item.append(element("bdi", "", visible(word)), element("span", "name", visible(tag)));
        item.append(element("span", "number", told(probabilities?.[place] ?? 0)));
        return item;
      }),
    );
    this.output.replaceChildren(list);
  }

  /** What else an answer has: its texts and numbers, by name. @param {Answer} answer */
  showValues(answer) {
    const values = Object.entries(answer).filter(([name, value]) => {
      return !OF_THE_REQUEST.includes(name) && ["string", "number", "boolean"].includes(typeof value);
    });
    const lines = values.map(([name, value]) => `${name} ${typeof value === "number" ? told(value) : visible(String(value))}`);
    this.output.textContent = lines.join(", ");
    this.answers.replaceChildren();
  }

  /** Show where the model looked. @param {Sight} sight @param {AbortSignal} signal */
  async look(sight, signal) {
    this.say("");
    if (!this.about.attention.length) return this.say(NO_ATTENTION);
    if (!this.question) return;
    const chosen = this.alternatives[this.best]?.text ?? "";
    /** @type {Record<string, any>} */
    const question = { ...this.question, ...sight, model: this.about.name };
    if (this.answer.prompt !== undefined) question.text += chosen;
    else if (this.alternatives.length && (this.best > 0 || !this.usual)) question.target = chosen;
    const turn = ++this.turns;
    this.host.setAttribute("aria-busy", "true");
    try {
      const record = await look(question, signal);
      if (turn === this.turns) this.draw(record);
    } catch (error) {
      if (signal.aborted || turn !== this.turns) return;
      this.destroy();
      this.say(/** @type {Error} */ (error).message, true);
    } finally {
      if (turn === this.turns) this.host.removeAttribute("aria-busy");
    }
  }

  /** @param {import("../../views/static/record.js").MapRecord} record */
  draw(record) {
    this.destroy();
    const { pinned } = this.state;
    const there = pinned && pinned.place < (pinned.side === "row" ? record.rows : record.columns).length;
    const view = this.state.view ?? (record.rows.length === 1 ? "words" : "lines");
    this.viewer = new Viewer(this.host, record, { ...this.state, view, pinned: null }, (state) => {
      this.state = { ...state };
      this.changed();
    });
    if (there) this.viewer.pin(pinned);
    this.turn(this.theme);
  }

  /** Show the pane in a theme. @param {string | undefined} theme */
  turn(theme) {
    this.theme = theme;
    if (!this.viewer) return;
    if (theme) this.viewer.root.dataset.theme = theme;
    else delete this.viewer.root.dataset.theme;
    this.viewer.later();
  }

  /** Say why there is nothing to see. @param {string} text @param {boolean} [wrong] */
  say(text, wrong = false) {
    this.note.textContent = text;
    this.note.classList.toggle("wrong", wrong);
  }
}

/** A text in which nothing steers the page but its line breaks. @param {string} text */
function visible(text) {
  return text.split("\n").map((line) => (line.trim() ? harmless(line) : line.replace(/[^\t ]/gu, "\ufffd"))).join("\n");
}

/** @param {Scored} scored */
function scoredLine({ text, log_probability }) {
  const shown = element("span", "text", visible(text) || "(nothing)");
  shown.dir = "auto";
  return [shown, element("span", "number", `log p ${log_probability.toFixed(2)}`)];
}

/** @param {string} label @param {number} probability */
function labelLine(label, probability) {
  const bar = element("span", "bar");
  const part = element("span", "");
  part.style.width = `${100 * probability}%`;
  bar.append(part);
  bar.setAttribute("aria-hidden", "true");
  return [element("span", "text", visible(label)), element("span", "number", told(probability)), bar];
}

/** A list, under a heading where it has one. @param {HTMLElement[][]} lines @param {string} [title] */
function bestList(lines, title) {
  const list = element("ol", "best");
  for (const parts of lines) {
    const item = document.createElement("li");
    const line = parts.length === 1 ? parts[0] : element("div", "");
    if (parts.length > 1) line.append(...parts);
    item.append(line);
    list.append(item);
  }
  if (!title) return list;
  const whole = document.createElement("div");
  whole.append(element("h3", "", title), list);
  return whole;
}
