// Arithmetic on lists of numbers.

export const dot = (one, other) => one.reduce((sum, value, n) => sum + value * other[n], 0);

/** Return the largest absolute value of a table. Math.max(...values) would overflow the stack for a large table. */
export const largest = table =>
  table.reduce((most, row) => row.reduce((soFar, value) => Math.max(soFar, Math.abs(value)), most), 0);
