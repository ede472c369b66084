// Client of the server's API.

/**
 * @typedef {object} ModelInfo a model of the server
 * @property {string} name
 * @property {string} kind task of the model
 * @property {string} description short description of the task
 * @property {string} preset
 * @property {number} parameters
 * @property {string[]} attention kinds of attention
 * @property {string[]} options
 * @property {{beam?: number}} defaults defaults of options that depend on the model
 *
 * @typedef {{max_bytes: number, max_characters: number, max_beam: number, max_tokens: number, timeout: number}} Limits
 * @typedef {{text: string, log_probability: number, ranking_score?: number}} Scored
 *
 * @typedef {object} Answer the response of /api/predict; its fields depend on the task
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

/** An error response of the server. */
export class ApiError extends Error {
  /** @param {number} status @param {string} line */
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

/** Store the token until the tab is closed. @param {string} token */
export function storeToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/**
 * Send a request to the server.
 * @param {string} address
 * @param {object | null} content the request body; null sends a GET request
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function send(address, content, signal) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = {
    ...(token && { Authorization: `Bearer ${token}` }),
    ...(content && { "Content-Type": "application/json" }),
  };
  const body = content && JSON.stringify(content);
  /** @type {Response} */
  let response;
  try {
    response = await fetch(address, { method: content ? "POST" : "GET", headers, body, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "cannot reach the server");
  }
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({}));
    throw new ApiError(response.status, error ?? `the server returned status ${response.status}`);
  }
  return response;
}

/** Fetch the models and limits of the server. @returns {Promise<{models: ModelInfo[], limits: Limits}>} */
export async function fetchModels() {
  return (await send("/api/models", null)).json();
}

/**
 * @param {object} content
 * @param {AbortSignal} signal
 * @returns {Promise<import("../../views/static/record.js").MapRecord>}
 */
export async function look(content, signal) {
  return (await send("/api/look", content, signal)).json();
}

/**
 * Stream an answer; partial results are passed to a callback.
 * @param {object} content
 * @param {AbortSignal} signal
 * @param {(part: Part) => void} onPart
 * @returns {Promise<Answer>}
 */
export async function stream(content, signal, onPart) {
  const { body } = await send("/api/stream", content, signal);
  for await (const { name, data } of events(/** @type {ReadableStream<any>} */ (body))) {
    if (name === "part") onPart(data);
    else if (name === "answer") return data;
    else throw new ApiError(200, data.error);
  }
  throw new ApiError(0, "the connection closed before the answer was complete");
}

/**
 * Parse server-sent events.
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
      const complete = text.split("\n\n");
      text = complete.pop() ?? "";
      for (const event of complete) {
        const [name, data] = event.split("\n").map((line) => line.slice(line.indexOf(": ") + 2));
        yield { name, data: JSON.parse(data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
