// A little arithmetic with lists of numbers.

export const dot = (one, other) => one.reduce((sum, value, n) => sum + value * other[n], 0);

/** The largest of a table, signs aside. Spread out as arguments, a large table would not fit on the stack. */
export const largest = table =>
  table.reduce((most, row) => row.reduce((soFar, value) => Math.max(soFar, Math.abs(value)), most), 0);
