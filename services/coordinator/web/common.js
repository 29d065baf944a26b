// What the views share: asking for JSON, and putting texts, never HTML, on the page.

const DAY = 86400;
const TIME = /_(at|until|since)$/;

export const $ = (id) => document.getElementById(id);

export function make(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(digits)));
}

export function percent(part) {
  return part === null || part === undefined ? "–" : `${(part * 100).toFixed(1)} %`;
}

// A stretch of time in its own unit.
export function stretch(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  if (size >= DAY) return `${number(seconds / DAY, 3)} d`;
  if (size >= 3600) return `${number(seconds / 3600, 3)} h`;
  return size >= 60 ? `${number(seconds / 60, 3)} min` : `${number(seconds, 3)} s`;
}

export function when(time, now) {
  if (time === null || time === undefined) return "never";
  const date = new Date(time * 1000);
  const distance = time >= now ? `in ${stretch(time - now)}` : `${stretch(now - time)} ago`;
  if (Number.isNaN(date.getTime())) return distance;
  return `${date.toISOString().slice(0, 19).replace("T", " ")} UTC (${distance})`;
}

// Names and values of a thing; times are those whose names say so.
export function facts(title, values, now) {
  const list = make("dl");
  for (const [name, value] of Object.entries(values)) {
    const shown = TIME.test(name) ? when(value, now) : typeof value === "boolean" ? (value ? "yes" : "no") : number(value, 6);
    list.append(make("dt", name.replaceAll("_", " ")), make("dd", shown));
  }
  return make("section", undefined, make("h3", title), list);
}

// columns: [{title, of: row → text or element, isText}]. Wide ones are moved with the keys, too.
export function table(caption, columns, rows) {
  const head = make("tr");
  for (const { title, isText } of columns) {
    const cell = make("th", title);
    cell.scope = "col";
    if (isText) cell.className = "text";
    head.append(cell);
  }
  const body = make("tbody");
  for (const row of rows) {
    const line = make("tr");
    for (const { of, isText } of columns) {
      const value = of(row);
      const cell = value instanceof Node ? make("td", undefined, value) : make("td", value);
      if (isText) cell.className = "text";
      line.append(cell);
    }
    body.append(line);
  }
  const holder = make("div", undefined, make("table", undefined, make("caption", caption), make("thead", undefined, head), body));
  holder.className = "scroll";
  holder.tabIndex = 0;
  holder.setAttribute("role", "region");
  holder.setAttribute("aria-label", caption);
  return holder;
}

export function link(text, address) {
  const made = make("a", text);
  made.href = address;
  return made;
}

function say(text, isTrouble) {
  $("message").textContent = text;
  $("message").className = isTrouble ? "notice" : "";
}

// Asks, and shows what comes: `show` puts it into #result, and returns what is said of it.
export async function fill(address, show) {
  say("looking it up …", false);
  $("result").replaceChildren();
  $("result").setAttribute("aria-busy", "true");
  try {
    const response = await fetch(address);
    const answer = await response.json();
    if (response.ok) {
      say(show(answer), false);
      // It stands there for all who see; who hears the page is told.
      if ($("result").hasChildNodes()) $("message").className = "unseen";
    }
    else say(answer.error, true);
  } catch {
    say("the coordinator does not answer", true);
  }
  $("result").removeAttribute("aria-busy");
}
