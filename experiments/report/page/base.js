// Small helpers. Everything from a run is set as text, never parsed as HTML.

/** An element: h("a.link", {href, onclick}, child, "text", [more]). */
function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const svg = SVG_TAGS.has(tag);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") Object.entries(value).forEach((pair) => element.style.setProperty(...pair));
    else if (key === "value" && !svg) element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

const SVG_TAGS = new Set(["svg", "g", "path", "line", "circle", "rect", "text"]);

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** A number as people read it: 3 digits, thousands apart. */
function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(size < 1 ? digits : digits + (size >= 100))));
}

/** How numbers that stand side by side are written: all with the digits that the largest needs. */
function sameFormat(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const largest = known.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  if (largest >= 1000 || known.every(Number.isInteger)) return (value) => number(value === null || value === undefined ? value : Math.round(value));
  const digits = largest ? Math.min(Math.max(3 - Math.max(Math.floor(Math.log10(largest)), 0), 0) + (largest < 0.01 ? 2 : 0), 6) : 0;
  const least = 0.5 * 10 ** -digits;
  return (value) => {
    if (value === null || value === undefined) return "–";
    if (Math.abs(value) <= 1e-9 * largest) return (0).toFixed(digits); // what is left of a running sum
    return Math.abs(value) < least ? value.toExponential(1) : value.toFixed(digits);
  };
}

/** A share or a reward: 0.35, 1.00, −0.10 */
function share(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  return value.toFixed(digits).replace("-", "−");
}

function plural(count, one, many = one + "s") {
  return `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;
}

/** Calls once per frame, however often it is asked to. */
function oncePerFrame(work) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      work();
    });
  };
}

function debounce(work, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

/** What the page remembers between visits; a page from a file may not be allowed to. */
const memory = {
  get(name) {
    try {
      return localStorage.getItem(`ssp-${name}`);
    } catch (error) {
      if (error instanceof DOMException) return null;
      throw error;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(`ssp-${name}`, value);
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
    }
  },
};

const COLOURS = 8;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

function colour(place) {
  return `var(--c${place % COLOURS})`;
}

function dash(place) {
  return DASHES[Math.floor(place / COLOURS) % DASHES.length];
}

/** "2" is a hop count; a benchmark has a name. */
function groupName(group) {
  if (!/^\d+$/.test(group)) return group;
  return group === "1" ? "1 hop" : `${group} hops`;
}
