// The page: what a user does, and what the updates change.

const $ = (id) => document.getElementById(id);
const COMMAND = /^\/(approve|clear|compact|context|diff|jobs|mcp|permissions|redo|remember|rewind|skills|tree|undo)(\s|$)/;
const QUIET = 600; // milliseconds in which a new question takes no answer

const client = new Client();
const conversation = new Conversation($("log"), $("live"));
let queue = [];
let running = null;
let following = false;

function announce(text) {
  $("announcement").textContent = text;
}

function problem(text) {
  $("problem").textContent = text;
}

async function attempt(work) {
  problem("");
  try {
    return await work();
  } catch (error) {
    problem(error.message);
    return null;
  }
}

// --- the state ---

async function loadState() {
  const state = await client.call("GET", "/session");
  client.last = state.update_id;
  $("entry").hidden = true;
  $("room").hidden = false;
  $("state").textContent = state.model;
  conversation.reset();
  $("questions").replaceChildren();
  for (const message of state.messages) conversation.add(message);
  showContext(state.context);
  queue = state.queue.map((item) => ({ ...item }));
  running = state.running && { ...state.running };
  if (running) for (const part of running.partial) conversation.grow(part.kind === "thinking" ? "thinking" : "text", part.text);
  for (const question of state.approvals) ask(question);
  for (const question of state.others_approvals) watch(question);
  showQueue();
  toEnd();
  await loadSessions();
}

async function loadSessions() {
  try {
    const { sessions } = await client.call("GET", "/sessions");
    $("sessions").replaceChildren(...sessions.map(sessionNode));
  } catch {
    $("sessions").replaceChildren(element("li", { class: "note", text: "The list can't be read." }));
  }
}

function sessionNode(session) {
  if (session.current) return element("li", {}, element("strong", { text: session.title || "This session" }));
  const button = element("button", { type: "button", text: session.title || session.id });
  button.addEventListener("click", () => attempt(() => client.call("POST", `/sessions/${encodeURIComponent(session.id)}`)));
  return element("li", {}, button);
}

function showContext({ used, size }) {
  const share = size ? ` (${Math.round((100 * used) / size)} %)` : "";
  $("context").textContent = `${used.toLocaleString()} of ${size ? size.toLocaleString() : "?"} tokens${share}`;
}

function showFigures(stats) {
  const rows = {
    "Prompt": `${stats.prompt_tokens.toLocaleString()} tokens`,
    "From the cache": `${stats.cached_tokens.toLocaleString()} tokens`,
    "Restored": `${stats.restored_tokens.toLocaleString()} tokens`,
    "Answer": `${stats.completion_tokens.toLocaleString()} tokens`,
    "Reading": stats.prefill_speed ? `${stats.prefill_speed.toFixed(0)} tokens/s` : "–",
    "Writing": stats.decode_speed ? `${stats.decode_speed.toFixed(1)} tokens/s` : "–",
  };
  $("figures").replaceChildren(...Object.entries(rows).flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]));
  showContext({ used: stats.context_used, size: stats.context_size });
}

function showQueue() {
  $("queue").replaceChildren(...queue.map((item) => {
    const cancel = element("button", { type: "button", text: "Cancel", "aria-label": `Cancel the prompt ${item.prompt.slice(0, 60)}` });
    cancel.addEventListener("click", () => attempt(() => client.call("DELETE", `/request/${item.request}`)));
    return element("li", {}, `${item.position} before it: ${item.prompt.slice(0, 200)}`, cancel);
  }));
  $("stop").disabled = running === null;
}

// --- updates ---

const DECISIONS = { once: "allowed once", session: "allowed for this session", always: "always allowed", deny: "denied" };

const RECEIVERS = {
  queued(data) {
    if (data.prompt === sending) mine.add(data.request);
    const known = queue.find((item) => item.request === data.request);
    if (known) known.position = data.position;
    else queue.push({ ...data });
    showQueue();
  },
  started(data) {
    const item = queue.find((entry) => entry.request === data.request);
    queue = queue.filter((entry) => entry !== item);
    running = { request: data.request, mine: mine.has(data.request), prompt: item ? item.prompt : "" };
    if (running.mine) pending.set(data.request, running.prompt);
    showQueue();
    announce("Shepherd answers.");
  },
  message_added(data) {
    showOwnPrompt(data);
    conversation.add(data.message);
  },
  delta: (data) => grow("text", data),
  codeblock: (data) => grow("text", data),
  thinking: (data) => grow("thinking", data),
  notice(data) {
    if (data.topic === "output" || data.topic === "task") conversation.output(data.id, data.text);
    else if (data.topic === "prefill") {
      if (data.place) announce(`Waiting, position ${data.place} in the queue of the model.`);
    } else if (data.topic === "plan") conversation.note(planText(data.text));
    else if (data.topic === "mode") conversation.note(`The approval mode is ${data.text}.`);
    else if (isDiff(data.text.slice(data.text.indexOf("\n") + 1))) conversation.append(shownInFull(data.text.slice(data.text.indexOf("\n") + 1)));
    else conversation.note(data.text);
  },
  error: (data) => conversation.note(data.message, "error"),
  stats: (data) => { if (!data.provider) showFigures(data.stats); },
  eviction: (data) => conversation.evict(data.removed),
  cleared() {
    conversation.reset();
    conversation.note("The conversation was cleared.");
  },
  approval_needed: (data) => ask(data),
  approval_open: (data) => watch(data),
  approval_decided(data) {
    const node = document.getElementById(`question-${data.id}`);
    if (node) node.remove();
    const said = DECISIONS[data.decision] || data.decision;
    conversation.note(`${data.tool}: ${said}${data.reason ? ` (${data.reason})` : ""}`);
  },
  response_complete(data) {
    showOwnPrompt(data);
    queue = queue.filter((item) => item.request !== data.request);
    if (running && running.request === data.request) running = null;
    mine.delete(data.request);
    ended.add(data.request);
    conversation.showLive();
    if (data.context) showContext(data.context);
    if (data.finish_reason === "cancelled") conversation.note("Stopped.");
    announce(data.finish_reason === "stop" ? "The answer is complete." : `The answer ended: ${data.finish_reason}.`);
    showQueue();
  },
};

// The server does not send a client its own prompt: it joins before what follows it. A prompt that
// was expanded (a custom command) is shown as it was typed.
const mine = new Set();
const ended = new Set();
let sending = null; // the prompt whose request has no id yet
const pending = new Map();

function showOwnPrompt(data) {
  const prompt = pending.get(data.request);
  if (prompt === undefined) return;
  pending.delete(data.request);
  conversation.add({ role: "user", content: prompt });
}

function grow(kind, data) {
  showOwnPrompt(data);
  conversation.grow(kind, data.text);
}

function planText(json) {
  const plan = JSON.parse(json);
  const signs = { completed: "☑", in_progress: "▸", pending: "☐" };
  return plan.steps ? plan.steps.map((s) => `${signs[s.status] || "☐"} ${s.step}`).join("\n") : plan.proposal || "";
}

function receive(name, data) {
  const handler = RECEIVERS[name];
  if (handler) handler(data);
}

// --- questions ---

function ask(question) {
  if (document.getElementById(`question-${question.id}`)) return;
  const title = `title-${question.id}`;
  const node = element("section", { class: "question", id: `question-${question.id}`, "aria-labelledby": title, tabindex: "-1" });
  const asker = question.asker ? ` for ${question.asker}` : "";
  const isEffect = question.accesses.some((a) => a.kind === "effect");
  const heading = isEffect ? ["Keep these changes"] : ["Allow ", element("code", { text: question.tool })];
  node.append(element("h3", { id: title }, ...heading, ...revealed(asker), "?"));
  for (const text of [question.sandbox, question.cause && `Cause: ${question.cause}`]) if (text) node.append(element("p", { class: "note" }, ...revealed(text)));
  if (question.preview) node.append(shownInFull(question.preview));
  const choice = question.parts.length ? partChoice(question.parts) : null;
  if (choice) node.append(choice.box);
  else if (question.detail) node.append(shownInFull(question.detail));
  const all = element("details", {}, element("summary", { text: "Arguments and accesses" }));
  all.open = !question.preview;
  all.append(shownInFull(JSON.stringify(question.arguments, null, 2)));
  all.append(element("ul", {}, ...question.accesses.map((a) => element("li", {}, `${a.kind} `, ...revealed(a.target), a.claim === "exact" ? "" : ` (${a.claim})`))));
  node.append(all);
  const reason = element("input", { id: `reason-${question.id}`, maxlength: "2000", autocomplete: "off" });
  node.append(element("label", { for: reason.id, text: "A word to the model (optional)" }), reason, answers(question, reason, isEffect, choice));
  const follows = isAtEnd();
  $("questions").append(node);
  conversation.preview(question.call_id, question.preview);
  announce(isEffect ? "Changes need your approval." : `A call of ${question.tool} needs your approval.`);
  if (follows) toEnd();
}

// A question that another client is asked: it is shown, and takes no answer here.
function watch(question) {
  if (document.getElementById(`question-${question.id}`)) return;
  const node = element("section", { class: "question elsewhere", id: `question-${question.id}` });
  node.append(element("h3", {}, "Another client is asked: allow ", element("code", { text: question.tool }), "?"));
  if (question.preview) node.append(shownInFull(question.preview));
  const follows = isAtEnd();
  $("questions").append(node);
  announce(`Another client is asked about a call of ${question.tool}.`);
  if (follows) toEnd();
}

// Check boxes for the parts of a change: one for each file, and for each hunk of a file with several.
function partChoice(parts) {
  const box = element("fieldset", { class: "parts" }, element("legend", { text: "Keep" }));
  const marks = []; // by the numbers of the parts
  const choice = { box, changed: () => {}, numbers: () => marks.flatMap((mark, i) => (mark.checked ? [i + 1] : [])), count: parts.length };
  for (let at = 0; at < parts.length;) {
    const first = parts[at];
    const hunks = [];
    do hunks.push(parts[at++]); while (at < parts.length && first.hunk && parts[at].hunk && parts[at].path === first.path);
    const all = checkBox(first.title);
    const folded = element("details", {}, element("summary", { text: hunks.length > 1 ? `${hunks.length} hunks` : "Diff" }));
    const own = hunks.map((part) => {
      const mark = hunks.length > 1 ? checkBox(part.hunk) : all;
      if (mark !== all) folded.append(mark.label);
      if (part.diff) folded.append(shownInFull(part.diff));
      return mark.input;
    });
    all.input.addEventListener("change", () => {
      for (const input of own) input.checked = all.input.checked;
      choice.changed();
    });
    for (const input of own) if (input !== all.input) input.addEventListener("change", () => {
      const kept = own.filter((other) => other.checked).length;
      all.input.checked = kept > 0;
      all.input.indeterminate = kept > 0 && kept < own.length;
      choice.changed();
    });
    marks.push(...own);
    box.append(all.label);
    if (first.diff) box.append(folded);
  }
  return choice;
}

function checkBox(text) {
  const input = element("input", { type: "checkbox" });
  input.checked = true;
  return { input, label: element("label", {}, input, " ", ...revealed(text)) };
}

function answers(question, reason, isEffect, choice) {
  const box = element("div");
  const row = element("div", { class: "answers" });
  const [once, session, always, deny] = isEffect
    ? ["Keep", "Keep, and such changes in this session", "Always keep such changes", "Drop"]
    : ["Allow once", "Allow for this session", "Always allow", "Deny"];
  const offers = [["once", once, []], ["session", session, question.session], ["always", always, question.always], ["deny", deny, []]];
  const buttons = [];
  let isOpen = false;
  const refresh = () => {
    const kept = choice ? choice.numbers().length : 1;
    const isAll = !choice || kept === choice.count;
    for (const button of buttons) {
      const fits = isAll || button.value === "deny" || (button.value === "once" && kept > 0);
      button.disabled = !isOpen || !fits;
    }
  };
  if (choice) choice.changed = refresh;
  const open = (value) => {
    isOpen = value;
    refresh();
  };
  for (const [decision, label, rules] of offers) {
    if ((decision === "session" || decision === "always") && !rules.length) continue;
    const button = element("button", { type: "button", class: decision, value: decision, text: label });
    button.disabled = true;
    if (rules.length) {
      const text = element("p", { class: "rules", id: `${decision}-${question.id}` }, `${label}: `, ...revealed(rules.map((rule) => rule.text).join("; ")));
      button.setAttribute("aria-describedby", text.id);
      box.append(text);
    }
    button.addEventListener("click", async () => {
      open(false);
      const path = `/approvals/${encodeURIComponent(question.id)}`;
      const numbers = choice && decision === "once" ? choice.numbers() : [];
      const parts = choice && numbers.length && numbers.length < choice.count ? { parts: numbers } : {};
      const done = await attempt(() => client.call("POST", path, { decision, reason: reason.value.trim(), ...parts }));
      if (!done) open(true);
    });
    buttons.push(button);
    row.append(button);
  }
  setTimeout(() => open(true), QUIET);
  box.append(row);
  return box;
}

// --- what the user does ---

async function send(steer = false) {
  const prompt = $("prompt").value;
  if (!prompt.trim()) return;
  $("send").disabled = true;
  if (COMMAND.test(prompt) || prompt.startsWith("!")) {
    const done = await attempt(() => client.call("POST", "/command", { command: prompt.trim() }));
    $("send").disabled = false;
    if (done) $("prompt").value = "";
    if (done && prompt.startsWith("!!")) conversation.note(done.content); // no other client gets it
    return;
  }
  sending = prompt;
  const body = { prompt, async: true, ...(steer && running ? { steer: true } : {}) };
  const accepted = await attempt(() => client.call("POST", "/request", body));
  sending = null;
  $("send").disabled = false;
  if (!accepted) return;
  const joined = running && running.request === accepted.request;
  if (!ended.has(accepted.request) && !joined) mine.add(accepted.request);
  $("prompt").value = "";
  toEnd();
}

function stop() {
  if (running) attempt(() => client.call("DELETE", `/request/${running.request}`));
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send(event.ctrlKey || event.metaKey);
  } else if (event.key === "Escape") stop();
});
$("stop").addEventListener("click", stop);
$("clear").addEventListener("click", () => attempt(() => client.call("POST", "/clear", {})));
$("session").addEventListener("toggle", () => { if ($("session").open) loadSessions(); });
$("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  client.use($("key").value.trim());
  $("key").value = "";
  start();
});

async function start() {
  if (following) return;
  following = true;
  $("entry-problem").textContent = "";
  try {
    await client.follow(loadState, receive, (text) => { $("connection").textContent = text; });
  } catch (error) {
    following = false;
    const hadKey = client.key !== "";
    client.forget();
    client.last = "";
    $("connection").textContent = "Not connected";
    $("room").hidden = true;
    $("entry").hidden = false;
    $("entry-problem").textContent = hadKey ? error.message : "";
    $("key").focus();
  }
}

start();
