// The interface, as a list of addresses: what each takes and gives, read from /openapi.json.

import { element } from "../../views/static/controls.js";

/** @typedef {Record<string, any>} Schema */

const PARTS = ["About", "Limits", "Scored", "Ranked", "Span", "TopWeights", "Refusal"];

/** A schema that may be named elsewhere. @param {Schema} whole @param {Schema} schema @returns {Schema} */
function resolved(whole, schema) {
  const name = schema?.$ref?.split("/").pop();
  return name ? { title: name, ...whole.components.schemas[name] } : schema;
}

/** What a value is, in a few words. @param {Schema} schema @returns {string} */
export function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.map(kind).filter((/** @type {string} */ each) => each !== "null").join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((/** @type {unknown} */ each) => JSON.stringify(each)).join(" or ");
  if (schema.prefixItems) return `(${schema.prefixItems.map(kind).join(", ")})`;
  if (schema.type === "array") return schema.items ? `list of ${kind(schema.items)}` : "list";
  const bounds = [["minimum", "from"], ["exclusiveMinimum", "above"], ["maximum", "to"], ["exclusiveMaximum", "below"]];
  const told = bounds.filter(([name]) => schema[name] !== undefined).map(([name, word]) => ` ${word} ${schema[name]}`);
  return (schema.type ?? "anything") + told.join("");
}

/** The fields of a schema as a table. @param {Schema} schema @param {boolean} asked @returns {HTMLElement} */
function table(schema, asked) {
  const found = document.createElement("table");
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const row = found.insertRow();
    const head = element("th", "", name);
    head.setAttribute("scope", "row");
    row.append(head);
    row.insertCell().textContent = kind(field) + (asked && schema.required?.includes(name) ? ", needed" : "");
    row.insertCell().textContent = field.description ?? "";
  }
  return found;
}

/**
 * The schemas that something is one of, with their fields.
 * @param {Schema} whole
 * @param {Schema} schema
 * @param {boolean} asked whether it is sent to the server
 */
function described(whole, schema, asked) {
  const one = resolved(whole, schema);
  const several = one.oneOf ? one.oneOf.map((/** @type {Schema} */ each) => resolved(whole, each)) : [one];
  return several.flatMap((/** @type {Schema} */ each) => [
    element("p", "", [each.title, each.description].filter(Boolean).join(": ")),
    table(each, asked),
  ]);
}

/**
 * One address.
 * @param {Schema} whole
 * @param {string} method
 * @param {string} address
 * @param {Schema} operation
 */
function endpoint(whole, method, address, operation) {
  const section = element("section", "endpoint");
  section.append(element("h2", "", `${method.toUpperCase()} ${address}`), element("p", "", operation.summary));
  if (operation.description) section.append(element("p", "", operation.description));
  const asked = operation.requestBody?.content?.["application/json"]?.schema;
  if (asked) {
    section.append(element("h3", "", "Takes"), ...described(whole, asked, true));
    const origin = location.origin;
    const example = `curl ${origin}${address} -H 'Content-Type: application/json' -d '{"text": "..."}'`;
    section.append(element("pre", "", example));
  }
  const given = operation.responses[200]?.content?.["application/json"]?.schema;
  if (given) section.append(element("h3", "", "Gives"), ...described(whole, given, false));
  return section;
}

const whole = await (await fetch("/openapi.json")).json();
const host = /** @type {HTMLElement} */ (document.getElementById("endpoints"));
host.append(element("p", "", whole.info.description));
for (const [address, methods] of Object.entries(whole.paths)) {
  for (const [method, operation] of Object.entries(methods)) host.append(endpoint(whole, method, address, operation));
}
const parts = element("section", "endpoint");
parts.append(element("h2", "", "Parts of these"));
for (const name of PARTS) parts.append(...described(whole, { $ref: `#/components/schemas/${name}` }, false));
host.append(parts);
