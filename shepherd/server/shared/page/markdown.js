// A small renderer of Markdown that builds elements; HTML in the text stays text.

const FENCE = /^( {0,3})(`{3,}|~{3,}(?!~))([^`]*)$/;
const LIST_ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s([^]*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 12;
const MAX_LINE = 2000; // a longer line is no heading, rule or table: some patterns are quadratic

function renderMarkdown(text) {
  const fragment = document.createDocumentFragment();
  addBlocks(fragment, text.replace(/\r\n?/g, "\n").split("\n"), 0);
  return fragment;
}

function addBlocks(parent, lines, depth) {
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) at += 1;
    else at = addBlock(parent, lines, at, depth);
  }
}

function addBlock(parent, lines, at, depth) {
  const line = lines[at];
  const fence = line.match(FENCE);
  if (fence) return addCode(parent, lines, at, fence);
  if (line.length > MAX_LINE) return addParagraph(parent, lines, at);
  const heading = line.match(/^ {0,3}(#{1,6})\s+(.*?)\s*#*$/);
  if (heading) {
    const node = element(`h${Math.min(6, heading[1].length + 2)}`);
    addInline(node, heading[2], 0);
    parent.append(node);
    return at + 1;
  }
  if (/^ {0,3}([-*_])\s*(\1\s*){2,}$/.test(line)) {
    parent.append(element("hr"));
    return at + 1;
  }
  if (depth < MAX_DEPTH && /^ {0,3}>/.test(line)) return addQuote(parent, lines, at, depth);
  if (depth < MAX_DEPTH && LIST_ITEM.test(line)) return addList(parent, lines, at, depth);
  if (line.includes("|") && isTableRule(lines[at + 1] || "")) return addTable(parent, lines, at);
  return addParagraph(parent, lines, at);
}

function isTableRule(line) {
  return line.length <= MAX_LINE && line.includes("-") && TABLE_RULE.test(line);
}

function addCode(parent, lines, at, fence) {
  const [, indent, marks, language] = fence;
  const body = [];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const closing = lines[end].match(/^ {0,3}(`{3,}|~{3,})\s*$/);
    if (closing && closing[1][0] === marks[0] && closing[1].length >= marks.length) break;
    body.push(lines[end].slice(Math.min(indent.length, lines[end].search(/\S|$/))));
  }
  const code = element("code", { text: body.join("\n") });
  const name = language.trim().split(/\s+/)[0];
  const figure = element("figure", {}, element("pre", { tabindex: "0" }, code));
  if (name) figure.prepend(element("figcaption", { text: name }));
  parent.append(figure);
  return end + 1;
}

function addQuote(parent, lines, at, depth) {
  const body = [];
  let end = at;
  for (; end < lines.length && /^ {0,3}>/.test(lines[end]); end += 1)
    body.push(lines[end].replace(/^ {0,3}> ?/, ""));
  const quote = element("blockquote");
  addBlocks(quote, body, depth + 1);
  parent.append(quote);
  return end;
}

function addList(parent, lines, at, depth) {
  const [, indent, mark] = lines[at].match(LIST_ITEM);
  const ordered = /\d/.test(mark);
  const list = element(ordered ? "ol" : "ul");
  if (ordered && parseInt(mark, 10) !== 1) list.setAttribute("start", String(parseInt(mark, 10)));
  let end = at;
  while (end < lines.length) {
    const item = lines[end].match(LIST_ITEM);
    if (!item || item[1].length > indent.length + 1 || item[1].length < indent.length) break;
    if (/\d/.test(item[2]) !== ordered) break;
    const body = [item[3].trimStart()];
    end += 1;
    while (end < lines.length) {
      const next = lines[end];
      const deeper = next.search(/\S|$/) > indent.length + 1;
      const blankInside = !next.trim() && (lines[end + 1] || "").search(/\S|$/) > indent.length + 1 && (lines[end + 1] || "").trim();
      if (!(deeper && next.trim()) && !blankInside) break;
      body.push(next.slice(Math.min(next.search(/\S|$/), indent.length + item[2].length + 1)));
      end += 1;
    }
    list.append(listItem(body, depth));
  }
  parent.append(list);
  return end;
}

function listItem(body, depth) {
  const node = element("li");
  const rest = body.findIndex((line, i) => i > 0 && (LIST_ITEM.test(line) || FENCE.test(line) || !line.trim()));
  const first = (rest < 0 ? body : body.slice(0, rest)).join("\n");
  const task = first.match(/^\[([ xX])\]\s+/);
  if (task) node.append(task[1] === " " ? "☐ " : "☑ ");
  addInline(node, task ? first.slice(task[0].length) : first, 0);
  if (rest >= 0) addBlocks(node, body.slice(rest), depth + 1);
  return node;
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

function addTable(parent, lines, at) {
  const table = element("table");
  const head = cells(lines[at]);
  table.append(element("thead", {}, tableRow("th", head, head.length)));
  const body = element("tbody");
  let end = at + 2;
  for (; end < lines.length && lines[end].includes("|"); end += 1) body.append(tableRow("td", cells(lines[end]), head.length));
  table.append(body);
  parent.append(element("div", { class: "table", tabindex: "0" }, table));
  return end;
}

// No cell beyond the row's own: a wide head must not make each short row as wide.
function tableRow(tag, texts, width) {
  const row = element("tr");
  for (const text of texts.slice(0, width)) {
    const cell = element(tag, tag === "th" ? { scope: "col" } : {});
    addInline(cell, text, 0);
    row.append(cell);
  }
  return row;
}

function addParagraph(parent, lines, at) {
  const body = [lines[at]];
  let end = at + 1;
  for (; end < lines.length && lines[end].trim(); end += 1) {
    if (FENCE.test(lines[end]) || LIST_ITEM.test(lines[end]) || /^ {0,3}(#{1,6}\s|>)/.test(lines[end])) break;
    body.push(lines[end]);
  }
  const node = element("p");
  addInline(node, body.join("\n"), 0);
  parent.append(node);
  return end;
}

// Code, emphasis, strike-through and links; no nested quantifier, so that no text is very slow.
const INLINE = /(`+)([^`]|[^`][^]*?[^`])\1(?!`)|\*\*(?=\S)([^\n]*?\S)\*\*(?!\*)|__([^_\n]+)__|\*([^*\s][^*\n]*)\*|(?<![\w])_([^_\s][^_\n]*)_(?![\w])|~~([^~\n]+)~~|!?\[([^\]\n]*)\]\(([^()\s]+)\)|<(https?:\/\/[^\s<>]+)>|\\([\\`*_{}[\]()#+\-.!|~>])/g;
const MAX_INLINE = 6000; // a longer text is shown without emphasis and links

function addInline(parent, text, depth) {
  if (depth > 4 || text.length > MAX_INLINE) {
    parent.append(text);
    return;
  }
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    parent.append(text.slice(at, match.index));
    parent.append(inlineNode(match, depth));
    at = match.index + match[0].length;
  }
  parent.append(text.slice(at));
}

function inlineNode(match, depth) {
  const [whole, ticks, code, strong, strong2, em, em2, strike, label, target, auto, escaped] = match;
  if (ticks) return element("code", { text: code.replace(/^ (.*[^ ].*) $/, "$1") });
  if (escaped) return document.createTextNode(escaped);
  if (auto || target !== undefined) return linkNode(whole, auto || label || target, auto || target);
  const [tag, inner] = strong || strong2 ? ["strong", strong || strong2] : strike ? ["s", strike] : ["em", em || em2];
  const node = element(tag);
  addInline(node, inner, depth + 1);
  return node;
}

// A link to http or https that shows where it leads; anything else stays text.
function linkNode(whole, label, target) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return document.createTextNode(whole);
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return document.createTextNode(whole);
  return element("a", { href: url.href, rel: "noopener noreferrer", target: "_blank", title: url.href, text: label });
}
