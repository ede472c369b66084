// API reference: the endpoints with their requests and responses, read from /openapi.json.

import { element } from "../../views/static/controls.js";

/** @typedef {Record<string, any>} Schema */

/** Names of the schemas shown so far. @type {Set<string>} */
const shown = new Set();

/** Resolve a reference to a schema. @param {Schema} spec @param {Schema} schema @returns {Schema} */
function resolve(spec, schema) {
  const name = schema?.$ref?.split("/").pop();
  return name ? { title: name, ...spec.components.schemas[name] } : schema;
}

/** Describe the type of a value. @param {Schema} schema @returns {string} */
export function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return options.map(kind).filter((/** @type {string} */ name) => name !== "null").join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((/** @type {unknown} */ value) => JSON.stringify(value)).join(" or ");
  if (schema.prefixItems) return `(${schema.prefixItems.map(kind).join(", ")})`;
  if (schema.type === "array") return schema.items ? `list of ${kind(schema.items)}` : "list";
  const bounds = [["minimum", "from"], ["exclusiveMinimum", "above"], ["maximum", "to"], ["exclusiveMaximum", "below"]];
  const limits = bounds.filter(([name]) => schema[name] !== undefined).map(([name, word]) => ` ${word} ${schema[name]}`);
  return (schema.type ?? "any") + limits.join("");
}

/** Create a table of the fields of a schema. @param {Schema} schema @param {boolean} isRequest @returns {HTMLElement} */
function table(schema, isRequest) {
  const fields = document.createElement("table");
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const row = fields.insertRow();
    const head = element("th", "", name);
    head.setAttribute("scope", "row");
    row.append(head);
    row.insertCell().textContent = kind(field) + (isRequest && schema.required?.includes(name) ? ", required" : "");
    row.insertCell().textContent = field.description ?? "";
  }
  return fields;
}

/**
 * Describe a schema, or each variant of a union, with its fields.
 * @param {Schema} spec
 * @param {Schema} schema
 * @param {boolean} isRequest
 */
function describe(spec, schema, isRequest) {
  const one = resolve(spec, schema);
  const variants = one.oneOf ? one.oneOf.map((/** @type {Schema} */ variant) => resolve(spec, variant)) : [one];
  return variants.flatMap((/** @type {Schema} */ variant) => {
    shown.add(variant.title);
    const text = [variant.title, variant.description].filter(Boolean).join(": ");
    return [element("p", "", text), table(variant, isRequest)];
  });
}

/**
 * Create the section of an endpoint.
 * @param {Schema} spec
 * @param {string} method
 * @param {string} address
 * @param {Schema} operation
 */
function endpoint(spec, method, address, operation) {
  const section = element("section", "endpoint");
  section.append(element("h2", "", `${method.toUpperCase()} ${address}`), element("p", "", operation.summary));
  if (operation.description) section.append(element("p", "", operation.description));
  const request = operation.requestBody?.content?.["application/json"]?.schema;
  if (request) {
    section.append(element("h3", "", "Request"), ...describe(spec, request, true));
    const origin = location.origin;
    const example = `curl ${origin}${address} -H 'Content-Type: application/json' -d '{"text": "..."}'`;
    section.append(element("pre", "", example));
  }
  const response = operation.responses[200]?.content?.["application/json"]?.schema;
  if (response) section.append(element("h3", "", "Response"), ...describe(spec, response, false));
  return section;
}

const spec = await (await fetch("/openapi.json")).json();
const host = /** @type {HTMLElement} */ (document.getElementById("endpoints"));
host.append(element("p", "", spec.info.description));
for (const [address, methods] of Object.entries(spec.paths)) {
  for (const [method, operation] of Object.entries(methods)) host.append(endpoint(spec, method, address, operation));
}
const parts = element("section", "endpoint");
parts.append(element("h2", "", "Schemas"));
const rest = Object.keys(spec.components.schemas).filter((name) => !shown.has(name));
for (const name of rest) parts.append(...describe(spec, { $ref: `#/components/schemas/${name}` }, false));
host.append(parts);
