// The server: requests with the key in a header, and its stream of updates, which resumes.

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const STORE = { key: "shepherd-key", client: "shepherd-client" };
const FIRST_DELAY = 500;
const MAX_DELAY = 10000;

class Client {
  constructor() {
    this.key = sessionStorage.getItem(STORE.key) || "";
    this.id = sessionStorage.getItem(STORE.client) || "";
    if (!this.id) {
      const bytes = crypto.getRandomValues(new Uint8Array(16));
      this.id = "page_" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
      sessionStorage.setItem(STORE.client, this.id);
    }
    this.last = "";
  }

  use(key) {
    this.key = key;
    sessionStorage.setItem(STORE.key, key);
  }

  forget() {
    this.key = "";
    sessionStorage.removeItem(STORE.key);
  }

  async call(method, path, body) {
    const response = await this.send(method, path, body);
    return response.status === 204 ? {} : response.json();
  }

  async send(method, path, body, more = {}) {
    const headers = { "X-Client-ID": this.id, ...more };
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
    });
    if (!response.ok) throw await refusal(response);
    return response;
  }

  // Follow the updates for ever: `start` fetches the state, `receive` gets each update.
  async follow(start, receive, tell) {
    let delay = FIRST_DELAY;
    for (;;) {
      try {
        if (!this.last) await start();
        const response = await this.send("GET", "/updates", undefined, { "Last-Event-ID": this.last });
        tell("Connected");
        delay = FIRST_DELAY;
        for await (const update of updatesOf(response.body)) {
          if (update.id) this.last = update.id;
          if (update.name === "snapshot") {
            this.last = "";
            break;
          }
          receive(update.name, update.data);
        }
        if (!this.last) continue;
        tell("The connection ended; connecting again…");
      } catch (error) {
        if (error instanceof Refusal && (error.status === 401 || error.status === 403)) throw error;
        tell(`Not connected (${error.message}); trying again…`);
      }
      await new Promise((resolve) => setTimeout(resolve, delay));
      delay = Math.min(2 * delay, MAX_DELAY);
    }
  }
}

async function refusal(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message || message;
  } catch {
    // not an error object
  }
  return new Refusal(response.status, message);
}

// The server-sent events of a body: name, id and data of each.
async function* updatesOf(body) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const frames = rest.split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        const update = parseFrame(frame);
        if (update) yield update;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parseFrame(frame) {
  const fields = { event: "", id: "", data: "" };
  for (const line of frame.split("\n")) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon);
    if (colon > 0 && name in fields) fields[name] += line.slice(colon + 1).replace(/^ /, "");
  }
  return fields.event ? { name: fields.event, id: fields.id, data: JSON.parse(fields.data || "{}") } : null;
}
