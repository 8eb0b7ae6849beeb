// SPDX-License-Identifier: Apache-2.0
// The service's API: JSON, and server-sent events read by fetch, since an EventSource cannot give a token.

let token = sessionStorage.getItem('token') ?? '';

export class ApiError extends Error {
  /** @param {number} status @param {string[]} errors */
  constructor(status, errors) {
    super(errors.join('; '));
    this.status = status;
  }
}

/** @type {Promise<void> | null} */
let prompted = null;

/** Prompts for the token, once for all requests that need it. */
function askForToken() {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById('token-dialog'));
  const input = /** @type {HTMLInputElement} */ (document.getElementById('token'));
  prompted ??= new Promise(resolve => {
    dialog.addEventListener('close', () => {
      token = input.value.trim();
      input.value = '';
      sessionStorage.setItem('token', token);
      prompted = null;
      resolve();
    }, {once: true});
    dialog.showModal();
  });
  return prompted;
}

/** @param {string} path @param {RequestInit & {headers?: Record<string, string>}} options */
async function request(path, options = {}) {
  for (;;) {
    const headers = {...options.headers, ...(token ? {authorization: `Bearer ${token}`} : {})};
    const answer = await fetch(`/api${path}`, {...options, headers});
    if (answer.status === 401) { await askForToken(); continue; }
    if (answer.ok) return answer;
    const reply = await answer.json().catch(() => ({}));
    throw new ApiError(answer.status, reply.errors ?? [`${answer.status} ${answer.statusText}`]);
  }
}

/** @param {string} path @returns {Promise<any>} */
export async function get(path) { return (await request(path)).json(); }

/** @param {string} path @param {unknown} body @returns {Promise<any>} */
export async function post(path, body = {}) {
  const options = {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify(body)};
  return (await request(path, options)).json();
}

/** @param {string} path */
export async function blob(path) { return (await request(path)).blob(); }

/** Parses one event of a stream. @param {string} text @returns {Record<string, string>} */
export function fieldsOf(text) {
  return Object.fromEntries(text.split('\n').filter(line => !line.startsWith(':')).map(line => {
    const at = line.indexOf(': ');
    return [line.slice(0, at), line.slice(at + 2)];
  }));
}

/** Calls `onEvent` for each event until the stream ends (`end`) or `signal` aborts; resumes a stream that broke off.
 * @param {string} path @param {AbortSignal} signal @param {(event: string, data: any) => void} onEvent */
export async function follow(path, signal, onEvent) {
  let last = '';
  while (!signal.aborted) {
    try {
      const answer = await request(path, {signal, headers: last ? {'last-event-id': last} : {}});
      if (!answer.body) return;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (done) break;
        const parts = (rest + value).split('\n\n');
        rest = parts.pop() ?? '';
        for (const part of parts) {
          const fields = fieldsOf(part);
          if (fields.id) last = fields.id;
          if (fields.event) onEvent(fields.event, JSON.parse(fields.data));
          if (fields.event === 'end') return;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) throw error;
    }
    await new Promise(resolve => setTimeout(resolve, 1000));
  }
}
