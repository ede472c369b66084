// The page: a form, and a pane for each of one or two models.

import { element, themeButton } from "../../views/static/controls.js";
import { read, written } from "./address.js";
import { fetchModels, keepToken, Refusal } from "./api.js";
import { Form } from "./form.js";
import { Pane } from "./pane.js";

const part = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

class Page {
  /** @param {Form} form */
  constructor(form) {
    this.form = form;
    /** @type {Pane[]} */
    this.panes = [];
    this.running = new AbortController();
    this.address = read(location.hash);
    form.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    form.element.addEventListener("change", (event) => this.change(/** @type {any} */ (event.target).name));
    form.field("stop").addEventListener("click", () => this.running.abort());
    form.field("copy").hidden = !navigator.clipboard;
    form.field("copy").addEventListener("click", () => this.copy());
    const theme = themeButton(document.documentElement, () => {
      for (const pane of this.panes) pane.turn(document.documentElement.dataset.theme);
    });
    part("nav").append(theme);
    addEventListener("hashchange", () => this.restore());
    this.restore();
  }

  /** Show what the address says. */
  restore() {
    if (location.hash === written({ ...this.shown, fields: this.form.fields })) return;
    this.address = read(location.hash);
    this.form.fields = this.address.fields;
    this.clear();
    if (this.address.fields.text) this.run();
    else this.form.field("text").focus();
  }

  /** Show no panes, and wait for none. */
  clear() {
    this.running.abort();
    this.running = new AbortController();
    for (const pane of this.panes) pane.destroy();
    this.panes = [];
    part("panes").replaceChildren();
    this.form.field("stop").disabled = true;
    this.say("");
    this.fail("");
  }

  /** What the panes show; what the address said where there is none yet. */
  get shown() {
    const { panes, address } = this;
    if (!panes.length) return address;
    return { ...address, shown: panes.map(({ state }) => state), best: panes.map(({ best }) => best) };
  }

  /** Keep in the address what is shown. */
  keep() {
    history.replaceState(null, "", written({ ...this.shown, fields: this.form.fields }));
  }

  /** Copy the link that restores what is shown. */
  async copy() {
    this.keep();
    await navigator.clipboard.writeText(location.href);
    this.say("The link is copied.");
  }

  /** Look again where something else is to be looked at. @param {string} name */
  change(name) {
    if (!["words", "kind"].includes(name) || !this.panes.length) return;
    this.keep();
    for (const pane of this.panes) this.look(pane);
  }

  /** Look again, unless the run that it belongs to was stopped. @param {Pane} pane */
  look(pane) {
    pane.look(this.form.sight(pane.about), this.running.signal);
  }

  /** Ask every chosen model. */
  async run() {
    this.running.abort();
    const running = (this.running = new AbortController());
    this.build();
    this.keep();
    this.fail("");
    this.say("The model is at work.");
    this.form.field("stop").disabled = false;
    const began = performance.now();
    const runs = this.panes.map((pane) => {
      return pane.run(this.form.question(pane.about), this.form.sight(pane.about), running.signal);
    });
    const results = await Promise.allSettled(runs);
    if (this.running !== running) return;
    this.form.field("stop").disabled = true;
    for (const [place, result] of results.entries()) {
      if (result.status === "rejected" && !running.signal.aborted) this.explain(this.panes[place], result.reason);
    }
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    const answers = this.panes.filter((_, place) => results[place].status === "fulfilled").map(({ spoken }) => spoken);
    if (running.signal.aborted) this.say("Stopped.");
    else if (!answers.length) this.say("");
    else this.say(`Done in ${seconds} s.`, answers.join("; "));
  }

  /** A pane for every chosen model; one that is there keeps what it shows. */
  build() {
    const before = this.panes;
    const { shown, best } = this.address;
    this.panes = this.form.chosen.map((about, place) => {
      const old = before.find((pane) => pane.about === about);
      const state = old ? { ...old.state, pinned: null } : before.length ? {} : shown[place] ?? {};
      const theme = document.documentElement.dataset.theme;
      const pane = new Pane(about, { state, best: before.length ? 0 : best[place] ?? 0, theme }, (again) => {
        this.keep();
        if (again) this.look(pane);
      });
      return pane;
    });
    for (const pane of before) pane.destroy();
    part("panes").replaceChildren(...this.panes.map(({ element }) => element));
  }

  /** Show why a model gave no answer. @param {Pane} pane @param {Error} reason */
  explain(pane, reason) {
    pane.say(reason.message, true);
    this.fail(`${pane.about.name}: ${reason.message}`);
    if (!(reason instanceof Refusal)) throw reason;
  }

  /** Say how things stand; some of it only to those who hear it. @param {string} text @param {string} [spoken] */
  say(text, spoken = "") {
    part("status").replaceChildren(text, element("span", "spoken", ` ${spoken}`));
  }

  /** @param {string} text */
  fail(text) {
    part("error").textContent = text;
  }
}

/** Begin, or ask for the token first. */
async function begin() {
  const tokenForm = /** @type {HTMLFormElement} */ (part("token"));
  try {
    const { models, limits } = await fetchModels();
    tokenForm.hidden = true;
    part("error").textContent = "";
    part("form").hidden = false;
    new Page(new Form(/** @type {HTMLFormElement} */ (part("form")), models, limits));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    part("error").textContent = error.message;
    part("form").hidden = true;
    tokenForm.hidden = error.status !== 401;
  }
}

part("token").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  keepToken(String(new FormData(form).get("token")));
  begin();
});
begin();
