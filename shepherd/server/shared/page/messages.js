// The conversation: finished messages, the growing answer, calls with their results.

const RENDER_INTERVAL = 120;

class Conversation {
  constructor(log, live) {
    this.log = log;
    this.live = live;
    this.reset();
  }

  reset() {
    this.log.replaceChildren();
    this.items = [];
    this.calls = new Map();
    this.clearLive();
  }

  add(message) {
    const node = this.nodeOf(message);
    this.items.push(node);
    if (message.role === "assistant") this.clearLive();
    if (node && !node.parentNode) this.append(node);
  }

  append(node) {
    const follows = isAtEnd();
    this.log.append(node);
    if (follows) toEnd();
  }

  nodeOf(message) {
    if (message.role === "tool") return this.result(message.tool_call_id, message.content);
    const node = element("article", { class: `message ${message.role}` });
    if (message.role === "user") {
      const label = message.name ? "Note of Shepherd" : "You";
      node.append(element("span", { class: "hidden", text: `${label}: ` }), message.content);
      if (message.name) node.className = "message note";
      return node;
    }
    node.append(element("span", { class: "hidden", text: "Shepherd: " }));
    if (message.reasoning) node.append(thinkingNode(message.reasoning));
    if (message.content) node.append(renderMarkdown(message.content));
    for (const call of message.tool_calls || []) node.append(this.call(call));
    return node;
  }

  call(call) {
    const subject = ["command", "path", "pattern", "url", "name"].map((k) => call.arguments[k]).find((v) => typeof v === "string") || "";
    const state = element("span", { class: "note", text: " runs…" });
    const node = element("details", { class: "call" });
    const summary = element("summary", {}, element("code", { text: call.name }), " ", ...revealed(subject.split("\n")[0].slice(0, 200)), state);
    const full = JSON.stringify(call.arguments, null, 2);
    node.append(summary, element("pre", { class: "wrap", tabindex: "0", "aria-label": "Arguments" }, ...revealedLines(full)));
    const result = element("pre", { class: "wrap", tabindex: "0", "aria-label": "Result" });
    result.hidden = true;
    node.append(result);
    this.calls.set(call.id, { node, state, result });
    return node;
  }

  result(id, content) {
    const call = this.calls.get(id);
    if (!call) return element("p", { class: "note", text: content });
    const failed = content.startsWith("Error: ");
    call.state.textContent = failed ? " failed" : " done";
    call.state.className = failed ? "note error" : "note";
    this.output(id, content);
    return call.node;
  }

  output(id, content) {
    const call = this.calls.get(id);
    if (!call) return;
    call.result.hidden = false;
    if (isDiff(content)) call.result.replaceChildren(...shownInFull(content).childNodes);
    else call.result.textContent = content;
  }

  preview(id, preview) {
    const call = this.calls.get(id);
    if (call && isDiff(preview)) call.node.insertBefore(shownInFull(preview), call.result);
  }

  evict(ranges) {
    let count = 0;
    for (const [start, stop] of [...ranges].reverse()) {
      for (const node of this.items.splice(start, stop - start)) if (node) node.classList.add("evicted");
      count += stop - start;
    }
    this.note(`${count} older messages left the context.`);
  }

  note(text, kind = "") {
    this.append(element("p", { class: `note ${kind}`, text }));
  }

  clearLive() {
    this.partial = { text: "", thinking: "" };
    this.live.replaceChildren();
  }

  grow(kind, text) {
    this.partial[kind] += text;
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.showLive();
    }, RENDER_INTERVAL);
  }

  showLive() {
    const { text, thinking } = this.partial;
    if (!text && !thinking) return;
    const follows = isAtEnd();
    const open = this.live.querySelector("details.thinking[open]") !== null;
    const node = element("div", { class: "message assistant" });
    if (thinking) {
      const folded = thinkingNode(thinking);
      folded.open = open;
      node.append(folded);
    }
    node.append(renderMarkdown(text), element("span", { class: "cursor", "aria-hidden": "true", text: "▍" }));
    this.live.replaceChildren(node);
    if (follows) toEnd();
  }
}

function thinkingNode(text) {
  return element("details", { class: "thinking" }, element("summary", { text: "Thinking" }), element("pre", { class: "wrap", text }));
}

function revealedLines(text) {
  return text.split("\n").flatMap((line, i) => (i ? ["\n", ...revealed(line)] : revealed(line)));
}

function isAtEnd() {
  const page = document.scrollingElement;
  return page.scrollHeight - page.scrollTop - page.clientHeight < 120;
}

function toEnd() {
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
}
