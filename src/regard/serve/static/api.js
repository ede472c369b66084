// The server's interface as functions: errors are one line, and answers can grow.

/**
 * @typedef {object} About a model of the server
 * @property {string} name
 * @property {string} kind the task that it was trained for
 * @property {string} does what it does with a text, in words
 * @property {string} preset
 * @property {number} parameters
 * @property {string[]} attention the kinds of it
 * @property {string[]} options
 * @property {{beam?: number}} defaults what options are unless they are set, where the model decides
 *
 * @typedef {{bytes: number, characters: number, beam: number, tokens: number, seconds: number}} Limits
 * @typedef {{text: string, log_probability: number}} Scored
 *
 * @typedef {object} Answer what /api/predict gives; which of these there are depends on the kind
 * @property {string} [text]
 * @property {string} [prompt]
 * @property {Scored[]} [alternatives]
 * @property {{label: string, probability: number}[]} [ranked]
 * @property {string[]} [labels]
 * @property {string[]} [words]
 * @property {string[]} [tags]
 * @property {number[]} [probabilities]
 *
 * @typedef {{part?: string, beam?: Scored[]}} Part
 */

const TOKEN = "regard-token";

/** An answer of the server that is an error. */
export class Refusal extends Error {
  /** @param {number} status @param {string} line */
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

/** Keep the token that the server asks for, until the tab is closed. @param {string} token */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/**
 * Ask the server.
 * @param {string} address
 * @param {object | null} content what to send; null only asks
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function ask(address, content, signal) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = {
    ...(token && { Authorization: `Bearer ${token}` }),
    ...(content && { "Content-Type": "application/json" }),
  };
  const body = content && JSON.stringify(content);
  /** @type {Response} */
  let found;
  try {
    found = await fetch(address, { method: content ? "POST" : "GET", headers, body, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(0, "the server does not answer");
  }
  if (!found.ok) {
    const told = await found.json().catch(() => ({}));
    throw new Refusal(found.status, told.error ?? `the server answers with status ${found.status}`);
  }
  return found;
}

/** The models of the server, and what may be asked of them. @returns {Promise<{models: About[], limits: Limits}>} */
export async function fetchModels() {
  return (await ask("/api/models", null)).json();
}

/**
 * @param {object} content
 * @param {AbortSignal} signal
 * @returns {Promise<import("../../views/static/record.js").MapRecord>}
 */
export async function look(content, signal) {
  return (await ask("/api/look", content, signal)).json();
}

/**
 * The answer, and before it what there is so far.
 * @param {object} content
 * @param {AbortSignal} signal
 * @param {(part: Part) => void} grown
 * @returns {Promise<Answer>}
 */
export async function stream(content, signal, grown) {
  const { body } = await ask("/api/stream", content, signal);
  for await (const { name, data } of events(/** @type {ReadableStream<any>} */ (body))) {
    if (name === "part") grown(data);
    else if (name === "answer") return data;
    else throw new Refusal(200, data.error);
  }
  throw new Refusal(0, "the server stopped in the middle of its answer");
}

/**
 * Server-sent events, as they come.
 * @param {ReadableStream<any>} body
 * @returns {AsyncGenerator<{name: string, data: any}>}
 */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const whole = text.split("\n\n");
      text = whole.pop() ?? "";
      for (const each of whole) {
        const [name, data] = each.split("\n").map((line) => line.slice(line.indexOf(": ") + 2));
        yield { name, data: JSON.parse(data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
