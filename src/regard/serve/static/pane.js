// A pane: the output of one model and its attention.

import { element } from "../../views/static/controls.js";
import { formatWeight, sanitize } from "../../views/static/labels.js";
import { Viewer } from "../../views/static/viewer.js";
import { look, stream } from "./api.js";

/**
 * @typedef {import("./api.js").ModelInfo} ModelInfo
 * @typedef {import("./api.js").Answer} Answer
 * @typedef {import("./api.js").Scored} Scored
 * @typedef {import("../../views/static/viewer.js").State} State
 * @typedef {{words: boolean, kind?: string}} LookOptions
 */

const NO_ATTENTION =
  "This model has no attention: everything it knows about the text is in one vector of fixed size.";
const RANKING = "Ranked by log-probability with length penalty";
const REQUEST_FIELDS = ["kind", "model", "text", "source", "prompt"];

export class Pane {
  /**
   * @param {ModelInfo} about
   * @param {{state: Partial<State>, best: number, theme: string | undefined}} restored
   * @param {(again?: boolean) => void} changed called when the view changes, with true if the attention must be loaded again
   */
  constructor(about, restored, changed) {
    this.about = about;
    this.changed = changed;
    /** @type {Partial<State>} */
    this.state = { ...restored.state };
    this.best = restored.best;
    this.theme = restored.theme;
    this.turns = 0; // number of looks started; only the last is shown
    /** @type {Viewer | null} */
    this.viewer = null;
    /** @type {Record<string, any> | null} the fields of the request that a look needs */
    this.request = null;
    /** @type {Answer} */
    this.answer = {};
    /** @type {Scored[]} */
    this.alternatives = [];
    this.isDefault = true; // whether the best result is that of the default beam size
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

  /** The answer as text for screen readers. */
  get spoken() {
    const { name } = this.about;
    const marked = [...this.output.querySelectorAll(".tag.marked")].map((tag) => {
      return `${tag.children[0].textContent} ${tag.children[1].textContent}`;
    });
    return `${name}: ${this.answer.tags ? marked.join(", ") || "no tags" : this.output.textContent}`;
  }

  /** Remove the viewer. */
  destroy() {
    this.viewer?.destroy();
    this.viewer = null;
  }

  /**
   * Run the model and show its output as it arrives.
   * @param {Record<string, any>} request
   * @param {LookOptions} options
   * @param {AbortSignal} signal
   */
  async run(request, options, signal) {
    this.output.setAttribute("aria-busy", "true");
    try {
      const answer = await this.predict(request, signal);
      this.show(request, answer);
    } finally {
      this.output.removeAttribute("aria-busy");
    }
    await this.look(options, signal);
  }

  /** @param {Record<string, any>} request @param {AbortSignal} signal @returns {Promise<Answer>} */
  predict(request, signal) {
    let written = "";
    this.showText("");
    return stream(request, signal, ({ part, beam }) => {
      written = beam ? beam[0].text : written + part;
      this.showText(written, beam ? undefined : request.text);
      if (beam) this.answers.replaceChildren(bestList(beam.map(scoredLine), "Current beam"));
    });
  }

  /**
   * Show the answer.
   * @param {Record<string, any>} request
   * @param {Answer} answer
   */
  show(request, answer) {
    const { text, second, context } = request;
    this.request = { text, ...(second !== undefined && { second }), ...(context !== undefined && { context }) };
    this.answer = answer;
    const { beam } = this.about.defaults;
    this.isDefault = beam === (request.beam ?? Math.max(beam ?? 1, request.nbest));
    this.alternatives = answer.alternatives ?? [];
    if (this.best >= this.alternatives.length) this.best = 0;
    if (answer.ranked) this.showLabels(answer);
    else if (answer.tags) this.showTags(answer);
    else if (answer.alternatives) this.showAlternatives();
    else this.showValues(answer);
  }

  /** Show a partial or complete text, after its prompt if it has one. @param {string} text @param {string} [prompt] */
  showText(text, prompt) {
    const before = prompt === undefined ? [] : [element("span", "prompt", visible(prompt))];
    this.output.replaceChildren(...before, element("span", "written", visible(text)));
  }

  /** Show the results as radio buttons; the attention of the selected one is shown. */
  showAlternatives() {
    const { alternatives, answer } = this;
    this.showText(alternatives[this.best].text, answer.prompt);
    if (alternatives.length < 2) return this.answers.replaceChildren();
    const lines = alternatives.map((scored, index) => {
      const line = element("label", "");
      const radio = document.createElement("input");
      radio.type = "radio";
      radio.name = `best-${this.about.name}`;
      radio.checked = index === this.best;
      radio.addEventListener("change", () => {
        this.best = index;
        this.showText(scored.text, answer.prompt);
        this.changed(true);
      });
      line.title = "Show the attention of this result";
      line.append(radio, ...scoredLine(scored));
      return [line];
    });
    const group = document.createElement("fieldset");
    const legend = element("legend", "", "Results (best first)");
    if (answer.prompt === undefined) legend.title = RANKING;
    group.append(legend, bestList(lines));
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
      ...(words ?? []).map((word, index) => {
        const tag = tags?.[index] ?? "";
        const item = element("li", tag === "O" ? "tag" : "tag marked");
        item.append(element("bdi", "", visible(word)), element("span", "name", visible(tag)));
        item.append(element("span", "number", formatWeight(probabilities?.[index] ?? 0)));
        return item;
      }),
    );
    this.output.replaceChildren(list);
  }

  /** Show the strings and numbers of an answer by name. @param {Answer} answer */
  showValues(answer) {
    const values = Object.entries(answer).filter(([name, value]) => {
      return !REQUEST_FIELDS.includes(name) && ["string", "number", "boolean"].includes(typeof value);
    });
    const lines = values.map(([name, value]) => `${name} ${typeof value === "number" ? formatWeight(value) : visible(String(value))}`);
    this.output.textContent = lines.join(", ");
    this.answers.replaceChildren();
  }

  /** Show the attention of the selected result. @param {LookOptions} options @param {AbortSignal} signal */
  async look(options, signal) {
    this.say("");
    if (!this.about.attention.length) return this.say(NO_ATTENTION);
    if (!this.request) return;
    const chosen = this.alternatives[this.best]?.text ?? "";
    /** @type {Record<string, any>} */
    const request = { ...this.request, ...options, model: this.about.name };
    if (this.answer.prompt !== undefined) request.text += chosen;
    else if (this.alternatives.length && (this.best > 0 || !this.isDefault)) request.target = chosen;
    const turn = ++this.turns;
    this.host.setAttribute("aria-busy", "true");
    try {
      const record = await look(request, signal);
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
    const inRange = pinned && pinned.index < (pinned.side === "row" ? record.rows : record.columns).length;
    const view = this.state.view ?? (record.rows.length === 1 ? "words" : "lines");
    this.viewer = new Viewer(this.host, record, { ...this.state, view, pinned: null }, (state) => {
      this.state = { ...state };
      this.changed();
    });
    if (inRange) this.viewer.pin(pinned);
    this.turn(this.theme);
  }

  /** Set the theme of the pane. @param {string | undefined} theme */
  turn(theme) {
    this.theme = theme;
    if (!this.viewer) return;
    if (theme) this.viewer.root.dataset.theme = theme;
    else delete this.viewer.root.dataset.theme;
    this.viewer.later();
  }

  /** Show a note instead of the attention. @param {string} text @param {boolean} [wrong] */
  say(text, wrong = false) {
    this.note.textContent = text;
    this.note.classList.toggle("wrong", wrong);
  }
}

/** Replace control characters in a text, except line breaks. @param {string} text */
function visible(text) {
  return text.split("\n").map((line) => (line.trim() ? sanitize(line) : line.replace(/[^\t ]/gu, "\ufffd"))).join("\n");
}

/** @param {Scored} scored */
function scoredLine({ text, log_probability, ranking_score }) {
  const shown = element("span", "text", visible(text) || "(empty)");
  shown.dir = "auto";
  const rank = ranking_score === undefined ? "" : `score ${ranking_score.toFixed(2)}, `;
  return [shown, element("span", "number", `${rank}log p ${log_probability.toFixed(2)}`)];
}

/** @param {string} label @param {number} probability */
function labelLine(label, probability) {
  const bar = element("span", "bar");
  const part = element("span", "");
  part.style.width = `${100 * probability}%`;
  bar.append(part);
  bar.setAttribute("aria-hidden", "true");
  return [element("span", "text", visible(label)), element("span", "number", formatWeight(probability)), bar];
}

/** Create a list with an optional heading. @param {HTMLElement[][]} lines @param {string} [title] */
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
