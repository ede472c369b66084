// The form: what to ask, of which models.

/** @typedef {import("./api.js").About} About */
/** @typedef {import("./address.js").Fields} Fields */

const NUMBERS = ["nbest", "beam", "tokens", "temperature", "seed", "threshold"];
const DRAWING = ["temperature", "seed"];
const USUAL_NBEST = 5;

export class Form {
  /**
   * @param {HTMLFormElement} element
   * @param {About[]} models
   * @param {import("./api.js").Limits} limits
   */
  constructor(element, models, limits) {
    this.element = element;
    this.models = models;
    this.limits = limits;
    this.field("model").replaceChildren(...models.map(({ name, does }) => new Option(`${name} (${does})`, name)));
    this.field("other").replaceChildren(new Option("no other", ""), ...models.map(({ name }) => new Option(name, name)));
    const kinds = [...new Set(models.flatMap(({ attention }) => attention))];
    this.field("kind").replaceChildren(new Option("as usual", ""), ...kinds.map((kind) => new Option(kind, kind)));
    for (const name of ["text", "second"]) this.field(name).maxLength = limits.characters;
    for (const name of ["nbest", "beam"]) this.field(name).max = String(limits.beam);
    this.field("tokens").max = String(limits.tokens);
    element.addEventListener("change", () => this.show());
    element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element.requestSubmit();
    });
    this.show();
  }

  /** A field by its name. @param {string} name @returns {any} */
  field(name) {
    return this.element.elements.namedItem(name);
  }

  /** The models that are asked. @returns {About[]} */
  get chosen() {
    const names = [this.field("model").value, this.field("other").value];
    const found = names.map((name) => this.models.find((model) => model.name === name));
    return /** @type {About[]} */ (found.filter((model, place) => model && (place === 0 || names[0] !== names[1])));
  }

  /** What is in the fields that are shown. @returns {Fields} */
  get fields() {
    /** @type {Fields} */
    const found = {};
    for (const { name, value, type, disabled } of /** @type {any} */ (this.element.elements)) {
      if (name && value && !disabled && !["submit", "button"].includes(type)) found[name] = value;
    }
    return found;
  }

  /** Fill the fields; what is no choice of a menu changes nothing. @param {Fields} fields */
  set fields(fields) {
    for (const [name, value] of Object.entries(fields)) {
      const field = this.field(name);
      if (!field || ["submit", "button"].includes(field.type)) continue;
      if (field instanceof HTMLSelectElement && ![...field.options].some((each) => each.value === value)) continue;
      field.value = value;
    }
    this.show();
  }

  /** Show the fields, and the choices of a menu, that the models have use for. */
  show() {
    const kinds = this.chosen.filter(({ attention }) => attention.length > 1).flatMap(({ attention }) => attention);
    for (const option of this.field("kind").options) option.hidden = option.value && !kinds.includes(option.value);
    if (!kinds.includes(this.field("kind").value)) this.field("kind").value = "";
    this.field("kind").labels[0].hidden = !kinds.length;
    const used = new Set(this.chosen.flatMap(({ options }) => options));
    for (const label of this.element.querySelectorAll("[data-option]")) {
      const shown = used.has(/** @type {HTMLElement} */ (label).dataset.option ?? "");
      /** @type {HTMLElement} */ (label).hidden = !shown;
      /** @type {any} */ (label.querySelector("input, textarea")).disabled = !shown;
    }
  }

  /** What to look at in one model. @param {About} model @returns {{words: boolean, kind?: string}} */
  sight(model) {
    const kind = this.field("kind").value;
    return { words: this.field("words").value === "words", ...(model.attention.includes(kind) && { kind }) };
  }

  /**
   * What to ask one model: of all fields those that it takes.
   * @param {About} model
   * @returns {Record<string, any>}
   */
  question(model) {
    const fields = this.fields;
    /** @type {Record<string, any>} */
    const asked = { model: model.name, text: fields.text ?? "" };
    for (const name of NUMBERS) if (fields[name] && model.options.includes(name)) asked[name] = Number(fields[name]);
    if (model.options.includes("second")) asked.second = fields.second ?? "";
    if (model.options.includes("context")) asked.context = (fields.context ?? "").split("\n").filter(Boolean);
    const draws = model.options.includes("temperature"); // unless the best are asked for
    if (model.options.includes("nbest") && !draws) asked.nbest ??= Math.min(USUAL_NBEST, this.limits.beam, asked.beam ?? USUAL_NBEST);
    if (asked.nbest || asked.beam) for (const name of DRAWING) delete asked[name];
    return asked;
  }
}
