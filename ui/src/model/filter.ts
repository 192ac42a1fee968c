// The filter language of lists. Words match texts; `field:value` matches a field, with `|` for
// alternatives; `cpu>4`, `mem>=8Gi`, `age<1d` compare; `-` in front negates.
import { parseQuantity } from "./quantity.ts";

export interface Filterable {
  /** What plain words are looked for in, in lower case. */
  text: string;
  fields: Record<string, string | undefined>;
  numbers?: Record<string, number | undefined>;
}

type Test = (row: Filterable) => boolean;

const SECONDS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };

function numberOf(name: string, text: string): number {
  if (name !== "age") return parseQuantity(text);
  const found = /^([0-9.]+)([smhdw])$/.exec(text);
  return found ? Number(found[1]) * SECONDS[found[2]] : Number.NaN;
}

function testOf(given: string): Test {
  // Units of quantities have capitals that matter.
  const compare = /^([a-z]+)(>=|<=|>|<)(.+)$/.exec(given);
  const word = given.toLowerCase();
  if (compare) {
    const [, name, sign, text] = compare;
    const limit = numberOf(name, text);
    return (row) => {
      const value = row.numbers?.[name];
      if (value === undefined || Number.isNaN(limit)) return false;
      if (sign === ">") return value > limit;
      if (sign === ">=") return value >= limit;
      return sign === "<" ? value < limit : value <= limit;
    };
  }
  const field = /^([a-z]+):(.+)$/.exec(word);
  if (field) {
    const wanted = field[2].split("|");
    return (row) => {
      const value = row.fields[field[1]]?.toLowerCase();
      return value !== undefined && wanted.some((one) => value.includes(one));
    };
  }
  const wanted = word.split("|").filter((one) => one !== "");
  return (row) => wanted.some((one) => row.text.includes(one));
}

/** A test for rows; every row passes an empty filter. */
export function compileFilter(text: string): Test {
  const words = text.split(/\s+/).filter((word) => word !== "" && word !== "-");
  const tests = words.map((word): Test => {
    if (!word.startsWith("-")) return testOf(word);
    const test = testOf(word.slice(1));
    return (row) => !test(row);
  });
  return (row) => tests.every((test) => test(row));
}
