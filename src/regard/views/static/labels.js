// Tokens as they can be shown: a token may hold anything, and nothing in it may steer the page.

const PICTURES = 0x2400; // where the pictures of the control characters begin
const STEERING = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu; // all but the two joiners, which shape letters

/**
 * The token with everything that steers the display replaced by a visible sign.
 * @param {string} token
 * @returns {string}
 */
export function harmless(token) {
  const text = token.replace(STEERING, (sign) => {
    const code = sign.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(PICTURES + code);
    return code === 0x7f ? "\u2421" : "\ufffd";
  });
  if (/^\s+$/u.test(text)) return "\u2423".repeat(text.length);
  return /^\p{M}/u.test(text) ? "\u25cc" + text : text;
}

/**
 * A weight as it is told.
 * @param {number} weight
 * @returns {string}
 */
export function told(weight) {
  return weight >= 0.001 || weight === 0 ? String(Number(weight.toFixed(3))) : weight.toExponential(1);
}
