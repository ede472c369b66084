// The form: the models to run, the text and the options.

/** @typedef {import("./api.js").ModelInfo} ModelInfo */
/** @typedef {import("./address.js").Fields} Fields */

const NUMBERS = ["nbest", "beam", "max_tokens", "temperature", "top_k", "top_p", "seed", "threshold"];
const SAMPLING = ["temperature", "top_k", "top_p", "seed"];
const DEFAULT_NBEST = 5;

export class Form {
  /**
   * @param {HTMLFormElement} element
   * @param {ModelInfo[]} models
   * @param {import("./api.js").Limits} limits
   */
  constructor(element, models, limits) {
    this.element = element;
    this.models = models;
    this.limits = limits;
    this.field("model").replaceChildren(...models.map(({ name, description }) => new Option(`${name} (${description})`, name)));
    this.field("other").replaceChildren(new Option("none", ""), ...models.map(({ name }) => new Option(name, name)));
    const kinds = [...new Set(models.flatMap(({ attention }) => attention))];
    this.field("kind").replaceChildren(new Option("default", ""), ...kinds.map((kind) => new Option(kind, kind)));
    for (const name of ["text", "second"]) this.field(name).maxLength = limits.max_characters;
    for (const name of ["nbest", "beam"]) this.field(name).max = String(limits.max_beam);
    this.field("max_tokens").max = String(limits.max_tokens);
    element.addEventListener("change", () => this.show());
    element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element.requestSubmit();
    });
    this.show();
  }

  /** Return a field by name. @param {string} name @returns {any} */
  field(name) {
    return this.element.elements.namedItem(name);
  }

  /** The selected models. @returns {ModelInfo[]} */
  get selected() {
    const names = [this.field("model").value, this.field("other").value];
    const models = names.map((name) => this.models.find((model) => model.name === name));
    return /** @type {ModelInfo[]} */ (models.filter((model, index) => model && (index === 0 || names[0] !== names[1])));
  }

  /** The values of the enabled fields. @returns {Fields} */
  get fields() {
    /** @type {Fields} */
    const fields = {};
    for (const { name, value, type, checked, disabled } of /** @type {any} */ (this.element.elements)) {
      const isSet = type === "checkbox" ? checked : value;
      if (name && isSet && !disabled && !["submit", "button"].includes(type)) fields[name] = value;
    }
    return fields;
  }

  /** Fill in the fields; unknown names and options are ignored. @param {Fields} fields */
  set fields(fields) {
    for (const [name, value] of Object.entries(fields)) {
      const field = this.field(name);
      if (!field || ["submit", "button"].includes(field.type)) continue;
      if (field instanceof HTMLSelectElement && ![...field.options].some((option) => option.value === value)) continue;
      if (field.type === "checkbox") field.checked = value === field.value;
      else field.value = value;
    }
    this.show();
  }

  /** Show the fields and menu options that the selected models support. */
  show() {
    const kinds = this.selected.filter(({ attention }) => attention.length > 1).flatMap(({ attention }) => attention);
    for (const option of this.field("kind").options) option.hidden = option.value && !kinds.includes(option.value);
    if (!kinds.includes(this.field("kind").value)) this.field("kind").value = "";
    this.field("kind").labels[0].hidden = !kinds.length;
    const supported = new Set(this.selected.flatMap(({ options }) => options));
    const greedy = supported.has("greedy") && this.field("greedy").checked;
    for (const label of this.element.querySelectorAll("[data-option]")) {
      const name = /** @type {HTMLElement} */ (label).dataset.option ?? "";
      /** @type {HTMLElement} */ (label).hidden = !supported.has(name);
      this.field(name).disabled = !supported.has(name) || (greedy && SAMPLING.includes(name));
    }
    this.showDefaults();
  }

  /** Show the defaults of the first model as placeholders. */
  showDefaults() {
    const [{ options, defaults, attention }] = this.selected;
    const samples = options.includes("temperature");
    this.field("nbest").placeholder = `default (${samples ? 1 : Math.min(DEFAULT_NBEST, this.limits.max_beam)})`;
    this.field("beam").placeholder = `default (${defaults.beam ?? "off"})`;
    this.field("kind").options[0].text = attention.length ? `default (${attention[0]})` : "default";
  }

  /** Return the options of a look at one model. @param {ModelInfo} model @returns {{words: boolean, kind?: string}} */
  lookOptions(model) {
    const kind = this.field("kind").value;
    return { words: this.field("words").value === "words", ...(model.attention.includes(kind) && { kind }) };
  }

  /**
   * Build the request to one model, with the options that it supports.
   * @param {ModelInfo} model
   * @returns {Record<string, any>}
   */
  request(model) {
    const fields = this.fields;
    /** @type {Record<string, any>} */
    const request = { model: model.name, text: fields.text ?? "" };
    for (const name of NUMBERS) if (fields[name] && model.options.includes(name)) request[name] = Number(fields[name]);
    if (fields.greedy && model.options.includes("greedy")) request.greedy = true;
    if (model.options.includes("second")) request.second = fields.second ?? "";
    if (model.options.includes("context")) request.context = (fields.context ?? "").split("\n").filter(Boolean);
    const samples = model.options.includes("temperature"); // unless beam search is requested
    if (model.options.includes("nbest") && !samples) {
      request.nbest ??= Math.min(DEFAULT_NBEST, this.limits.max_beam, request.beam ?? DEFAULT_NBEST);
    }
    if (request.nbest || request.beam) for (const name of ["greedy", ...SAMPLING]) delete request[name];
    return request;
  }
}
