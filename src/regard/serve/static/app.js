// The page: a form, and a pane for each selected model.

import { element, themeButton } from "../../views/static/controls.js";
import { format, parse } from "./address.js";
import { ApiError, fetchModels, storeToken } from "./api.js";
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
    this.address = parse(location.hash);
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

  /** Restore the state of the URL fragment. */
  restore() {
    if (location.hash === format({ ...this.shown, fields: this.form.fields })) return;
    this.address = parse(location.hash);
    this.form.fields = this.address.fields;
    this.clear();
    if (this.address.fields.text) this.run();
    else this.form.field("text").focus();
  }

  /** Remove all panes and cancel their requests. */
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

  /** The state of the panes, or that of the URL fragment if there are none. */
  get shown() {
    const { panes, address } = this;
    if (!panes.length) return address;
    return { ...address, shown: panes.map(({ state }) => state), best: panes.map(({ best }) => best) };
  }

  /** Save the state in the URL fragment. */
  saveAddress() {
    history.replaceState(null, "", format({ ...this.shown, fields: this.form.fields }));
  }

  /** Copy a link that restores the state. */
  async copy() {
    this.saveAddress();
    await navigator.clipboard.writeText(location.href);
    this.say("Link copied.");
  }

  /** Reload the attention when its options change. @param {string} name */
  change(name) {
    if (!["words", "kind"].includes(name) || !this.panes.length) return;
    this.saveAddress();
    for (const pane of this.panes) this.look(pane);
  }

  /** Reload the attention of a pane, unless its run was stopped. @param {Pane} pane */
  look(pane) {
    pane.look(this.form.lookOptions(pane.about), this.running.signal);
  }

  /** Run all selected models. */
  async run() {
    this.running.abort();
    const running = (this.running = new AbortController());
    this.build();
    this.saveAddress();
    this.fail("");
    this.say("Running\u2026");
    this.form.field("stop").disabled = false;
    const began = performance.now();
    const runs = this.panes.map((pane) => {
      return pane.run(this.form.request(pane.about), this.form.lookOptions(pane.about), running.signal);
    });
    const results = await Promise.allSettled(runs);
    if (this.running !== running) return;
    this.form.field("stop").disabled = true;
    for (const [index, result] of results.entries()) {
      if (result.status === "rejected" && !running.signal.aborted) this.explain(this.panes[index], result.reason);
    }
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    const answers = this.panes.filter((_, index) => results[index].status === "fulfilled").map(({ spoken }) => spoken);
    if (running.signal.aborted) this.say("Stopped.");
    else if (!answers.length) this.say("");
    else this.say(`Done in ${seconds} s.`, answers.join("; "));
  }

  /** Create a pane for every selected model, keeping the view of existing ones. */
  build() {
    const before = this.panes;
    const { shown, best } = this.address;
    this.panes = this.form.selected.map((about, index) => {
      const old = before.find((pane) => pane.about === about);
      const state = old ? { ...old.state, pinned: null } : before.length ? {} : shown[index] ?? {};
      const theme = document.documentElement.dataset.theme;
      const pane = new Pane(about, { state, best: before.length ? 0 : best[index] ?? 0, theme }, (again) => {
        this.saveAddress();
        if (again) this.look(pane);
      });
      return pane;
    });
    for (const pane of before) pane.destroy();
    part("panes").replaceChildren(...this.panes.map(({ element }) => element));
  }

  /** Show the error of a model. @param {Pane} pane @param {Error} reason */
  explain(pane, reason) {
    pane.say(reason.message, true);
    this.fail(`${pane.about.name}: ${reason.message}`);
    if (!(reason instanceof ApiError)) throw reason;
  }

  /** Set the status line. @param {string} text @param {string} [spoken] additional text for screen readers */
  say(text, spoken = "") {
    part("status").replaceChildren(text, element("span", "spoken", ` ${spoken}`));
  }

  /** @param {string} text */
  fail(text) {
    part("error").textContent = text;
  }
}

/** Start the page, or show the token form if the server requires a token. */
async function start() {
  const tokenForm = /** @type {HTMLFormElement} */ (part("token"));
  try {
    const { models, limits } = await fetchModels();
    tokenForm.hidden = true;
    part("error").textContent = "";
    part("form").hidden = false;
    new Page(new Form(/** @type {HTMLFormElement} */ (part("form")), models, limits));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    part("error").textContent = error.message;
    part("form").hidden = true;
    tokenForm.hidden = error.status !== 401;
  }
}

part("token").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  storeToken(String(new FormData(form).get("token")));
  start();
});
start();
