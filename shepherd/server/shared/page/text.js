// Elements from text; only textContent is ever set, so nothing in a text becomes markup.

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Characters that a reader can't see: controls, formats, directions, other spaces, fillers.
const INVISIBLE =
  /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}\u00a0\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200a\u202f\u205f\u2800\u3000\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/gu;
const WHITESPACE = /[ \t]{40,}|[ \t]+$/g;

// The text as nodes in which every invisible character is named.
function revealed(text) {
  const nodes = [];
  let at = 0;
  const marks = [...text.matchAll(INVISIBLE), ...text.matchAll(WHITESPACE)].filter((m) => m[0] !== "\t" || m.index + 1 === text.length);
  marks.sort((a, b) => a.index - b.index);
  for (const mark of marks) {
    if (mark.index < at) continue;
    nodes.push(text.slice(at, mark.index));
    const name = /^[ \t]+$/.test(mark[0])
      ? `<${mark[0].length} whitespace character${mark[0].length > 1 ? "s" : ""}>`
      : `<U+${mark[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;
    nodes.push(element("span", { class: "invisible", text: name }));
    at = mark.index + mark[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}

const DIFF_CLASSES = { "+": "added", "-": "removed", "@": "hunk", "\\": "hunk" };

function isDiff(text) {
  return text.startsWith("--- ") && text.includes("\n+++ ") && text.includes("\n@@ ");
}

// A text in full, line by line; a diff is coloured and keeps its signs.
function shownInFull(text) {
  const diff = isDiff(text);
  const block = element("pre", { class: "diff", tabindex: "0" });
  text.split("\n").forEach((line, index) => {
    const kind = !diff ? "" : index < 2 ? "file" : DIFF_CLASSES[line[0]] || "";
    const sign = diff && index >= 2 ? line.slice(0, 1) : "";
    block.append(element("span", { class: kind }, sign, ...revealed(line.slice(sign.length))));
  });
  return block;
}
