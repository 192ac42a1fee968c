// The URL is the state: the screen, its filter, its tab.
import { signal } from "@preact/signals";

export { hostPath, machinePath, volumePath } from "./paths.ts";

export const BASE = "/dashboard";

export interface Location {
  /** The path below the dashboard, in words. */
  words: string[];
  path: string;
  query: URLSearchParams;
}

function read(): Location {
  const path = location.pathname.slice(BASE.length) || "/";
  const words = path.split("/").filter((word) => word !== "").map(decodeURIComponent);
  return { words, path, query: new URLSearchParams(location.search) };
}

export const here = signal<Location>(read());

export const href = (path: string): string => BASE + path;

export function navigate(path: string, replace = false): void {
  if (replace) history.replaceState(null, "", href(path));
  else history.pushState(null, "", href(path));
  here.value = read();
}

/** Changes parameters of the current screen, without an entry in the history. */
export function setQuery(change: Record<string, string | null>): void {
  const query = new URLSearchParams(here.value.query);
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  navigate(here.value.path + (text === "" ? "" : `?${text}`), true);
}

addEventListener("popstate", () => {
  here.value = read();
});

/** Links of the page change the screen without loading the page again. */
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (!link.pathname.startsWith(`${BASE}/`)) return;
  // A part of this page, such as that of "Skip to content".
  if (link.hash !== "" && link.pathname === location.pathname) return;
  if (/\/(a|licences\.txt)(\/|$)/.test(link.pathname.slice(BASE.length))) return;
  event.preventDefault();
  navigate(link.pathname.slice(BASE.length) + link.search);
});
