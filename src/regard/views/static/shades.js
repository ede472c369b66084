// Map weights to colors, as in the other views.

/** @typedef {[number, number, number]} Color */

/** @type {Color[]} */
export const LIGHT_RAMP = [
  [242, 248, 252], [201, 228, 247], [163, 207, 241], [128, 185, 232], [97, 163, 221], [72, 140, 207],
  [52, 117, 188], [39, 95, 166], [30, 73, 140], [24, 54, 111], [18, 36, 81],
];

/** @type {Color[]} */
export const DARK_RAMP = [
  [30, 34, 44], [43, 49, 77], [47, 67, 115], [36, 87, 156], [47, 108, 179], [63, 130, 199],
  [85, 152, 214], [113, 174, 227], [146, 196, 236], [181, 217, 244], [221, 237, 249],
];

const CEILINGS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];

/** Number of shades, not counting zero. */
export const DEEPEST = 1023;

/**
 * Return the weight of the darkest shade: the smallest round number that no weight exceeds.
 * @param {number} most the largest weight as float32
 * @returns {number}
 */
export function ceiling(most) {
  return CEILINGS.find((top) => most <= Math.fround(top)) ?? 1;
}

/**
 * Return the color of a shade between 0 and 1.
 * @param {number} shade
 * @param {boolean} dark
 * @returns {Color}
 */
export function colorOf(shade, dark) {
  const ramp = dark ? DARK_RAMP : LIGHT_RAMP;
  const position = Math.min(1, Math.max(0, shade)) * (ramp.length - 1);
  const below = Math.min(ramp.length - 2, Math.floor(position));
  const mix = (/** @type {number} */ channel) =>
    Math.round(ramp[below][channel] + (position - below) * (ramp[below + 1][channel] - ramp[below][channel]));
  return [mix(0), mix(1), mix(2)];
}

/**
 * Return black or white, whichever has more contrast with the color.
 * @param {Color} color
 * @returns {string}
 */
export function inkOn(color) {
  const [red, green, blue] = color.map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

/**
 * Set or clear the shade of an element.
 * @param {HTMLElement} element
 * @param {number | null} shade
 * @param {boolean} dark
 */
export function setShade(element, shade, dark) {
  const color = shade === null ? null : colorOf(shade, dark);
  element.style.backgroundColor = color ? `rgb(${color.join(" ")})` : "";
  element.style.color = color ? inkOn(color) : "";
}

/**
 * Return the colors of all shades from 0 to DEEPEST as RGBA pixels.
 * @param {boolean} dark
 * @returns {Uint32Array}
 */
export function pixelTable(dark) {
  const bytes = new Uint8ClampedArray(4 * (DEEPEST + 1));
  for (let shade = 0; shade <= DEEPEST; shade++) bytes.set([...colorOf(shade / DEEPEST, dark), 255], 4 * shade);
  return new Uint32Array(bytes.buffer);
}
