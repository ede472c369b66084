// Prepare tokens and weights for display. A token can contain anything, including control characters.

const PICTURES = 0x2400; // first code point of the control pictures
const STEERING = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu; // except the two joiners, which shape letters

/**
 * Replace control characters in a token by visible symbols.
 * @param {string} token
 * @returns {string}
 */
export function sanitize(token) {
  const text = token.replace(STEERING, (sign) => {
    const code = sign.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(PICTURES + code);
    return code === 0x7f ? "\u2421" : "\ufffd";
  });
  if (/^\s+$/u.test(text)) return "\u2423".repeat(text.length);
  return /^\p{M}/u.test(text) ? "\u25cc" + text : text;
}

/**
 * Format a weight with three decimals.
 * @param {number} weight
 * @returns {string}
 */
export function formatWeight(weight) {
  return weight >= 0.001 || weight === 0 ? String(Number(weight.toFixed(3))) : weight.toExponential(1);
}
