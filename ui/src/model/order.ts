// The order of the rows of a table. Thousands of them are put in order again with every change, so what did not change
// is not computed again. Pure, but for what it remembers of rows.

export interface Sortable<R> {
  id: string;
  /** What rows are sorted by; without it the column is not sortable. */
  sort?: (row: R) => string | number;
}

/** Numbers within texts count as numbers: `web-2` comes before `web-10`. Quicker than a collator. */
function comparable(key: string | number): string | number {
  return typeof key === "number" ? key : key.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(10, "0"));
}

/** What a row is sorted by. Rows that did not change stay the same objects, so each is asked once. */
const keysOf = new WeakMap<object, WeakMap<object, string | number>>();

function sortKeys<R extends object>(rows: R[], column: Sortable<R>): (string | number)[] {
  const by = column.sort;
  if (!by) return [];
  let known = keysOf.get(column);
  if (!known) keysOf.set(column, (known = new WeakMap()));
  const found = known;
  return rows.map((row) => {
    let key = found.get(row);
    if (key === undefined) found.set(row, (key = comparable(by(row))));
    return key;
  });
}

/** An order of rows, to be used again while what they are sorted by is the same. */
export interface Order {
  column: string;
  keys: (string | number)[];
  order: number[];
}

/** The rows in the order that the URL names, or in that of the first column. */
export function sorted<R extends object>(rows: R[], columns: Sortable<R>[], wanted: string | null, before?: { current: Order | null }): R[] {
  const down = wanted?.startsWith("-") ?? false;
  const id = (wanted ?? "").replace(/^-/, "");
  const column = columns.find((one) => one.id === id && one.sort) ?? columns.find((one) => one.sort);
  if (!column) return rows;
  const keys = sortKeys(rows, column);
  const last = before?.current;
  const same = last?.column === column.id && last.keys.length === keys.length && keys.every((key, index) => key === last.keys[index]);
  const order = same ? last.order : rows.map((_, index) => index).sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0));
  if (before) before.current = { column: column.id, keys, order };
  const result = order.map((index) => rows[index]);
  return down ? result.reverse() : result;
}
