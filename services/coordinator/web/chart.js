// Small charts in SVG: axes that others draw in, and lines over time with values under the mouse.

const HEIGHT = 200;
const LEFT = 54;
const RIGHT = 8;
const TOP = 12;
const BOTTOM = 22;
const TICKS = 4;
const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))} k`;
  return size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

// A label of the value axis: as many digits as it takes to tell it from the next one.
function label(tick, step) {
  const digits = (String(Number(step.toPrecision(6))).split(".")[1] ?? "").length;
  return Math.abs(tick) >= 1e4 || digits > 4 ? short(Number(tick.toPrecision(12))) : tick.toFixed(digits);
}

// Bounds of the value axis that fall on round numbers.
export function roundBounds(low, high) {
  if (!(high > low)) high = low + (Math.abs(low) * 0.1 || 1);
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough * 0.999) * power;
  return [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step, step];
}

export function clockTime(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

// Axes of a chart. across: [begin, end]; up: [low, high, step]; ends: texts under the first axis.
// What is drawn goes to `svg`, at x(…) and y(…).
export function axes(holder, name, across, up, ends) {
  const [[begin, end], [low, high, step]] = [across, up];
  const width = holder.clientWidth || 560;
  const x = (t) => LEFT + ((t - begin) / (end - begin || 1)) * (width - LEFT - RIGHT);
  const y = (v) => HEIGHT - BOTTOM - ((v - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": name });
  for (let tick = low; tick <= high + step / 2; tick += step) {
    svg.append(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, label(tick, step)));
  }
  svg.append(element("text", { x: LEFT, y: HEIGHT - 5 }, ends[0]));
  svg.append(element("text", { x: width - RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, ends[1]));
  holder.replaceChildren(svg);
  return { svg, x, y, width };
}

// times: Unix seconds; series: [{name, kind: "first" | "second", values}]; fromZero: axis at 0.
export function draw(holder, times, series, fromZero) {
  const values = series.flatMap((s) => s.values).filter(Number.isFinite);
  if (times.length < 2 || values.length === 0) {
    holder.replaceChildren("waiting for data …");
    return;
  }
  const up = roundBounds(fromZero ? 0 : Math.min(...values), Math.max(...values));
  const [begin, end] = [times[0], times[times.length - 1]];
  const name = `${series.map((s) => s.name).join(" and ")}, over time`;
  const { svg, x, y, width } = axes(holder, name, [begin, end], up, [clockTime(begin), clockTime(end)]);
  for (const { kind, values: points } of [...series].reverse()) {
    const corners = points.flatMap((v, i) => {
      const here = `${x(times[i]).toFixed(1)},${y(v).toFixed(1)}`;
      // What is set holds until it is set again; what is measured goes smoothly.
      return kind === "second" && i ? [`${x(times[i]).toFixed(1)},${y(points[i - 1]).toFixed(1)}`, here] : [here];
    });
    svg.append(element("polyline", { class: `series ${kind}`, points: corners.join(" ") }));
  }
  const title = element("title", {}, "");
  svg.append(title);
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const part = Math.min(Math.max((at - LEFT) / (width - LEFT - RIGHT), 0), 1);
    const index = Math.round(part * (times.length - 1));
    const lines = series.map((s) => `${s.name}: ${short(s.values[index])}`);
    title.textContent = [clockTime(times[index]), ...lines].join("\n");
  });
}
