// Numbers as people read them.

// A share of one: 97 %, 4.2 %, 0.03 %; never a 0 that is not one, never a 100 that is not one.
export function percent(share) {
  const value = share * 100;
  if (share === 0 || share === 1) return `${value}\u202f%`;
  if (value > 99.9) return "99.9\u202f%";
  if (value >= 10) return `${value > 99 ? value.toFixed(1) : Math.round(value)}\u202f%`;
  return `${value >= 1 ? value.toFixed(1) : value >= 0.01 ? value.toFixed(2) : value >= 0.0001 ? value.toPrecision(1) : value.toExponential(0)}\u202f%`;
}

export const weightText = (weight) => (weight >= 0.0005 || weight === 0 ? weight.toFixed(3) : weight.toExponential(0));

export const minus = (text) => text.replace("-", "−");

export const signed = (value, digits = 2) => (value > 0 ? "+" : "") + minus(value.toFixed(digits));

export const fixed = (value, digits = 2) => minus(value.toFixed(digits));

export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

export function indexOfLargest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}
