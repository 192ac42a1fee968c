// Texts. The English text is the key; a catalogue of another language maps it to its own.
// `{name}` in a text is replaced by a parameter.
import { signal } from "@preact/signals";

export type Catalogue = Record<string, string>;

const catalogue = signal<Catalogue>({});
export const language = signal("en");

export function useCatalogue(name: string, texts: Catalogue): void {
  language.value = name;
  catalogue.value = texts;
  document.documentElement.lang = name;
}

export function t(text: string, parameters: Record<string, string | number> = {}): string {
  const found = catalogue.value[text] ?? text;
  return found.replace(/\{(\w+)\}/g, (whole, name: string) => (name in parameters ? String(parameters[name]) : whole));
}

/** A number of things: `plural(3, "machine")`. Other languages give `{n} machine` and `{n} machines`. */
export function plural(n: number, thing: string): string {
  return t(n === 1 ? `{n} ${thing}` : `{n} ${thing}s`, { n: n.toLocaleString(language.value) });
}
