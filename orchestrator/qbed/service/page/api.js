// SPDX-License-Identifier: Apache-2.0
// The service's API: JSON, and server-sent events read by fetch, since an EventSource cannot give a token.

let token = sessionStorage.getItem('token');

export class ApiError extends Error {
  constructor(status, errors) {
    super(errors.join('; '));
    this.status = status;
  }
}

// Prompts for the token, once for all requests that need it.
let prompted = null;
function askForToken() {
  prompted ??= new Promise(resolve => {
    const dialog = document.getElementById('token-dialog'), input = document.getElementById('token');
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

export async function get(path) { return (await request(path)).json(); }

export async function post(path, body) {
  const options = {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify(body ?? {})};
  return (await request(path, options)).json();
}

export async function blob(path) { return (await request(path)).blob(); }

// Calls onEvent(event, data) for each event until the stream ends (`end`) or `signal` aborts; comes again where it broke off.
export async function follow(path, signal, onEvent) {
  let last = '';
  while (!signal.aborted) {
    try {
      const answer = await request(path, {signal, headers: last ? {'last-event-id': last} : {}});
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (done) break;
        const parts = (rest + value).split('\n\n');
        rest = parts.pop();
        for (const part of parts) {
          const fields = Object.fromEntries(part.split('\n').filter(line => !line.startsWith(':')).map(line => {
            const at = line.indexOf(': ');
            return [line.slice(0, at), line.slice(at + 2)];
          }));
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
