"""The style and the script of a page, and its colours."""

from __future__ import annotations

# Colours of text and links on the page and on raised parts; tests check the contrast.
THEMES = {
    "light": {"page": "#ffffff", "raised": "#f1f3f5", "text": "#1b1f24", "quiet": "#505862",
              "line": "#c8ced5", "link": "#0a58a6", "bar": "#3d8fd1", "here": "#c24a00"},
    "dark": {"page": "#15181c", "raised": "#20252b", "text": "#e8eaed", "quiet": "#aab2bc",
             "line": "#434b55", "link": "#8cc2ff", "bar": "#3d7ab8", "here": "#ff9a57"},
}  # fmt: skip

STYLE = """
:root { color-scheme: light dark; %(light)s }
@media (prefers-color-scheme: dark) { :root { %(dark)s } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 75rem; padding: 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
p { max-width: 70ch; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; list-style: none; }
nav a { display: inline-block; padding: .25rem 0; }
figure { margin: 1.5rem 0; }
figure.narrow { display: inline-block; width: min(100%%, 390px); margin: .5rem 1rem .5rem 0;
  vertical-align: top; }
figure img { display: block; max-width: 100%%; height: auto; background: #fff; border-radius: 4px; }
figure img.large { max-width: none; width: 110rem; }
figcaption, .note { color: var(--quiet); font-size: .9rem; }
.notice { padding: .6rem 1rem; background: var(--raised); border-left: .5rem solid #d55e00;
  font-weight: 600; }
.scroll { overflow-x: auto; margin: 1rem 0 .25rem; }
table { width: max-content; border-collapse: collapse; font-size: .875rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 3rem); }
th, td { max-width: min(28rem, 70vw); padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; overflow-wrap: break-word; }
thead th { max-width: 8rem; background: var(--raised); vertical-align: bottom; }
tbody th { max-width: min(28rem, 45vw); }
tbody th:first-child { position: sticky; left: 0; background: var(--page); }
tbody tr:hover > * { background: var(--raised); }
th.number, td.number { text-align: right; }
td.number { white-space: nowrap; }
table.bars { width: 100%%; max-width: 46rem; margin: 1rem 0; table-layout: fixed; }
table.bars th, table.bars td { max-width: none; vertical-align: middle; }
table.bars .name { width: 28%%; }
table.bars .words { width: 30%%; }
table.bars td.number { white-space: normal; }
table.bars td.number span { white-space: nowrap; }
table.bars th.kind { width: auto; padding-top: .8rem; border-bottom: 0; font-weight: 600; }
table.bars tbody th[scope=row] { font-weight: 400; }
svg.bar { display: block; width: 100%%; height: 1.1rem; }
svg.bar .track { fill: var(--raised); }
svg.bar .value { fill: var(--bar); }
svg.bar .interval, svg.bar .point { fill: var(--text); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(9.5rem, 100%%), 1fr)); gap: .75rem;
  margin: 1rem 0; }
.tiles div { padding: .6rem .8rem; background: var(--raised); border-radius: 4px; }
.tiles dt, .tiles .note { font-size: .875rem; color: var(--quiet); }
.tiles dd { margin: 0; }
.tiles .figure { font-size: 1.5rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.control { position: sticky; top: 0; z-index: 1; padding: .5rem 0; background: var(--page);
  border-bottom: 1px solid var(--line); }
.control[hidden] { display: none; }
.control label { display: block; font-weight: 600; }
.control input { display: block; width: 100%%; max-width: 46rem; height: 2rem; margin: 0;
  accent-color: var(--link); }
.ends { display: flex; justify-content: space-between; align-items: center; max-width: 46rem;
  font-size: .875rem; color: var(--quiet); }
.control output { display: block; margin: .25rem 0; }
.control button { border-color: var(--line); padding: .1rem .6rem; }
.control button:disabled { color: var(--quiet); cursor: default; }
svg.frontier { display: block; width: 100%%; max-width: 34rem; height: auto; margin: .5rem 0; }
svg.frontier text { font: 12px system-ui, sans-serif; fill: var(--text); }
svg.frontier .axis, svg.frontier .path { stroke: var(--line); fill: none; }
svg.frontier .interval { stroke: var(--quiet); }
svg.frontier .point { fill: var(--bar); }
svg.frontier .ring { fill: none; stroke: var(--text); stroke-width: 2; }
svg.frontier g.here .point { fill: var(--here); r: 8px; }
svg.frontier g.here .interval { stroke: var(--here); stroke-width: 3; }
code { font: .875rem/1.4 ui-monospace, monospace; background: var(--raised); padding: .1rem .3rem;
  border-radius: 3px; }
h3 { margin: 2rem 0 .25rem; font-size: 1.05rem; }
h4 { margin: 1.25rem 0 0; font-size: 1rem; }
button { font: inherit; font-weight: inherit; color: inherit; background: none; border: 1px solid transparent;
  border-radius: 4px; padding: .25rem 0; text-align: inherit; cursor: pointer; }
th button { max-width: 100%%; overflow-wrap: anywhere; }
th button::after { content: "\\00a0↕"; color: var(--quiet); }
th[aria-sort=ascending] button::after { content: "\\00a0↑"; color: inherit; }
th[aria-sort=descending] button::after { content: "\\00a0↓"; color: inherit; }
figure button { border-color: var(--line); padding: .25rem .6rem; margin: .25rem 0; }
summary { cursor: pointer; padding: .4rem 0; color: var(--link); }
@media (min-width: 64rem) {
  .chooser { display: grid; grid-template-columns: minmax(0, 1fr) 26rem; column-gap: 2rem; }
  .control { grid-column: 1 / -1; }
  .choice { grid-column: 1; }
  svg.frontier { grid-column: 2; grid-row: 2 / span 2; align-self: start; position: sticky; top: 9rem; }
}
@media print {
  :root { color-scheme: light; %(light)s }
  body { max-width: none; padding: 0; font-size: .8rem; }
  nav, summary, button, .control, .choice { display: none; }
  .scroll { overflow: visible; }
  .scroll > table { width: 100%%; font-size: .7rem; }
  th, td { max-width: none; padding: .15rem .35rem; }
  th button { display: inline; }
  th button::after { content: ""; }
  th[aria-sort] button::after { content: ""; }
  thead { display: table-header-group; }
  tr, figure, .notice { break-inside: avoid; }
  h2, h3, h4, caption { break-after: avoid; }
  figure img { max-height: 20cm; }
  svg.frontier g.here .point { fill: var(--bar); r: 5px; }
  svg.frontier g.here .interval { stroke: var(--quiet); stroke-width: 1; }
  details::details-content { content-visibility: visible; height: auto; }
}
"""

# The script makes the buttons, so that a page without scripts has no buttons that do nothing.
SCRIPT = """
"use strict";
const buttonOf = () => {
  const button = document.createElement("button");
  button.type = "button";
  return button;
};
for (const chooser of document.querySelectorAll(".chooser")) {
  const control = chooser.querySelector(".control"), range = control.querySelector("input");
  const now = control.querySelector("output"), back = buttonOf();
  const choices = [...chooser.querySelectorAll(".choice")], start = range.value;
  const points = [...chooser.querySelectorAll("svg.frontier g[data-choice]")];
  const show = () => {
    const chosen = choices[range.value];
    choices.forEach(choice => { choice.hidden = choice !== chosen; });
    for (const point of points) {
      const here = point.dataset.choice === range.value;
      point.classList.toggle("here", here);
      if (here) point.parentElement.append(point);  // above others at the same place
    }
    range.setAttribute("aria-valuetext", chosen.dataset.name);
    now.textContent = chosen.dataset.words;
    back.disabled = range.value === start;
  };
  back.textContent = range.dataset.back;
  back.addEventListener("click", () => { range.value = start; show(); range.focus(); });
  range.addEventListener("input", show);
  choices.forEach(choice => { choice.querySelector(".told").hidden = true; });
  control.querySelector(".ends").firstElementChild.after(back);
  control.hidden = false;
  show();
}
const folded = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    folded.push(details);
  }
});
addEventListener("afterprint", () => { while (folded.length) folded.pop().open = false; });
for (const table of document.querySelectorAll("table:not(.bars)")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = buttonOf();
    button.append(...head.childNodes);
    head.append(button);
    const cell = row => row.cells[column];
    const missing = row => cell(row).textContent.startsWith("–");
    const number = row => cell(row).dataset.value;
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const order = (a, b) => {
        if (missing(a) || missing(b)) return missing(a) - missing(b);
        if (number(a) !== undefined && number(b) !== undefined) return sign * (number(a) - number(b));
        return sign * cell(a).textContent.localeCompare(cell(b).textContent);
      };
      body.append(...[...body.rows].sort(order));
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    });
  });
}
for (const picture of document.querySelectorAll("figure img")) {
  const button = buttonOf();
  button.textContent = "Enlarge";
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const large = picture.classList.toggle("large");
    button.setAttribute("aria-pressed", String(large));
    picture.parentElement.tabIndex = large ? 0 : -1;
  });
  picture.parentElement.after(button);
}
"""
